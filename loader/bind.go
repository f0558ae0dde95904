//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package loader

import (
	"bytes"

	"github.com/purecuda/cuda/driver"
)

// table binds the functions that sym finds and completes the table.
func table(source string, sym func(name string) uintptr) (*driver.API, error) {
	api := &driver.API{Source: source}
	bind(api, sym)
	if err := api.Complete(); err != nil {
		return nil, err
	}
	return api, nil
}

// first finds the function that is called a in new drivers and b in old ones.
func first(sym func(name string) uintptr, a, b string) uintptr {
	if fn := sym(a); fn != 0 {
		return fn
	}
	return sym(b)
}

// goString returns the text up to the first zero byte.
func goString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
