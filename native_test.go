package cuda_test

import (
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

func addressOf(p *uint32) uintptr { return uintptr(unsafe.Pointer(p)) }

// onStream makes a raw call of the table on s with the context current, as code
// outside this package does that uses a stream's handle.
func onStream(s *cuda.Stream, f func(driver.Stream) driver.Result) driver.Result {
	return inContext(s.Device(), func() driver.Result { return f(s.Handle()) })
}

func inContext(d *cuda.Device, f func() driver.Result) driver.Result {
	api := d.Driver().API()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, r := api.DevicePrimaryCtxRetain(driver.Device(d.Index()))
	if r != driver.Success {
		return r
	}
	defer api.DevicePrimaryCtxRelease(driver.Device(d.Index()))
	if r := api.CtxPushCurrent(c); r != driver.Success {
		return r
	}
	defer api.CtxPopCurrent()
	return f()
}
