//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package loader

import (
	"sync"

	"github.com/ebitengine/purego"

	"github.com/purecuda/cuda/driver"
)

// hostCallback returns the address of the C function that calls a
// [driver.HostFunc]. There is one for the process: purego never frees a callback
// and has room for two thousand. The driver calls it on a thread of its own.
var hostCallback = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(f uintptr) uintptr {
		driver.HostFunc(f).Call()
		return 0
	})
})
