//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package loader

import (
	"bytes"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall"
)

// libraries holds what was opened, by the handle that the system's loader gives
// to a file, whatever path led there. The lock of [system] guards it.
var libraries = make(map[uintptr]*Library)

// loaded returns the library for a handle, binding its functions the first time.
func loaded(handle uintptr, bind func() (*Library, error)) (*Library, error) {
	if l := libraries[handle]; l != nil {
		return l, nil
	}
	l, err := bind()
	if err != nil {
		return nil, err
	}
	libraries[handle] = l
	return l, nil
}

// table binds the functions that sym finds and completes the table.
func table(source string, sym func(name string) uintptr) (*driver.API, error) {
	api := &driver.API{Source: source}
	bind(api, sym, nil)
	for _, f := range driver.Functions {
		if f.Else != "" && sym(f.Symbol) == 0 {
			api.Missing = append(api.Missing, f.Symbol)
		}
	}
	if err := api.Complete(); err != nil {
		return nil, err
	}
	api.Fused = fuse(api, sym, nil)
	return api, nil
}

// fuse makes what does several of the functions of api, which are called in a scope
// unless that is nil, in one transition into C.
func fuse(api *driver.API, sym func(name string) uintptr, in *ccall.Scope) *driver.Fused {
	of := *api
	of.Fused = nil
	f := &driver.Fused{Of: &of, RecordWait: recordWait(sym, in)}
	if in != nil && in.Outer != nil {
		// A call has two scopes at the most: others are entered by calls of their own.
		f.Within, f.Relaxed = of.Bound, of.Quiet
		return f
	}
	within := func(scope *ccall.Scope) *driver.API {
		if in != nil {
			inner := *in
			inner.Outer, scope = scope, &inner
		}
		within := of
		bind(&within, sym, scope)
		within.Fused = fuse(&within, sym, scope)
		return &within
	}
	exchange := sym("cuThreadExchangeStreamCaptureMode")
	f.Within = func(c driver.Context) *driver.API {
		return within(&ccall.Scope{Enter: sym("cuCtxPushCurrent_v2"), Leave: sym("cuCtxPopCurrent_v2"), Value: uintptr(c)})
	}
	f.Relaxed = func() *driver.API {
		return within(&ccall.Scope{Enter: exchange, Leave: exchange, Value: uintptr(driver.CaptureModeRelaxed), ByAddress: 1, Lenient: 1})
	}
	return f
}

func recordWait(sym func(name string) uintptr, in *ccall.Scope) func(e driver.Event, from, to driver.Stream) driver.Result {
	record, wait := sym("cuEventRecord"), sym("cuStreamWaitEvent")
	return func(e driver.Event, from, to driver.Stream) driver.Result {
		pair := ccall.Pair{
			First:  ccall.Frame{Fn: record, Arg: [ccall.MaxArgs]uintptr{uintptr(e), uintptr(from)}},
			Second: ccall.Frame{Fn: wait, Arg: [ccall.MaxArgs]uintptr{uintptr(to), uintptr(e)}},
		}
		return driver.Result(pair.Call(in))
	}
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

// cString returns s with a zero byte behind it, where C may read it.
func cString(s string) []byte {
	b := ccall.Buffer(len(s) + 1)
	copy(b, s)
	return b
}
