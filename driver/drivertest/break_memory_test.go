package drivertest_test

import (
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// aside makes a stream of the context that s is of, for one use.
func aside(sound driver.API, s driver.Stream, use func(driver.Stream) driver.Result) driver.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, _ := sound.StreamGetCtx(s)
	sound.CtxPushCurrent(c)
	defer sound.CtxPopCurrent()
	other, _ := sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
	defer sound.StreamDestroy(other)
	return use(other)
}

var poolMutations = []mutation{
	{"pools give half", []string{"rule 29 memory freed", "rule 29 memory goes", "driver: a copy may not", "driver: a pool counts",
		"driver: copies between two devices' pools"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			return sound.MemAllocFromPoolAsync(n/2, p, s)
		}
	}},
	{"memory is freed at once", []string{"rule 29 memory goes"}, func(api *driver.API, sound driver.API) {
		api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result {
			return aside(sound, s, func(other driver.Stream) driver.Result { return sound.MemFreeAsync(p, other) })
		}
	}},
	{"sets run on another stream", []string{"rule 29 memory freed"}, func(api *driver.API, sound driver.API) {
		api.MemsetD8Async = func(p driver.DevicePtr, v uint8, n uint64, s driver.Stream) driver.Result {
			return aside(sound, s, func(other driver.Stream) driver.Result { return sound.MemsetD8Async(p, v, n, other) })
		}
	}},
	{"pools need a context", []string{"driver: pool memory needs"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			if c, _ := sound.CtxGetCurrent(); c == 0 {
				return 0, driver.ErrorInvalidContext
			}
			return sound.MemAllocFromPoolAsync(n, p, s)
		}
	}},
	{"pools refuse nothing", []string{"driver: nothing from a pool"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			if n == 0 {
				return 0, driver.ErrorInvalidValue
			}
			return sound.MemAllocFromPoolAsync(n, p, s)
		}
	}},
	{"pools are endless", []string{"driver: too much"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			addr, r := sound.MemAllocFromPoolAsync(n, p, s)
			return addr, instead(r, driver.ErrorOutOfMemory, success)
		}
	}},
	{"anything can be freed", []string{"driver: pool memory can be freed", "driver: pool and plain", "driver: memory from outside",
		"rule 29 pool memory"}, func(api *driver.API, sound driver.API) {
		api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result {
			return instead(sound.MemFreeAsync(p, s), driver.ErrorInvalidValue, success)
		}
	}},
	{"pool memory has words", []string{"driver: pool memory has no words"}, func(api *driver.API, sound driver.API) {
		api.StreamWriteValue32 = func(s driver.Stream, p driver.DevicePtr, v, flags uint32) driver.Result {
			return instead(sound.StreamWriteValue32(s, p, v, flags), driver.ErrorInvalidValue, success)
		}
	}},
	{"pool memory has a handle", []string{"driver: pool memory has no IPC"}, func(api *driver.API, sound driver.API) {
		api.IPCGetMemHandle = func(p driver.DevicePtr) (driver.IPCMemHandle, driver.Result) {
			h, r := sound.IPCGetMemHandle(p)
			return h, instead(r, driver.ErrorInvalidValue, success)
		}
	}},
	{"copies are not checked", []string{"driver: a copy may not"}, func(api *driver.API, sound driver.API) {
		api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			return instead(sound.MemcpyAsync(dst, src, n, s), driver.ErrorInvalidValue, success)
		}
	}},
	{"pools are relaxed", []string{"driver: allocation and release"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			previous, _ := sound.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			defer sound.ThreadExchangeStreamCaptureMode(previous)
			return sound.MemAllocFromPoolAsync(n, p, s)
		}
	}},
	{"figures are zero", []string{"driver: a pool counts", "driver: a pool releases"}, func(api *driver.API, sound driver.API) {
		api.MemPoolGetAttribute = func(driver.MemPool, driver.MemPoolAttribute) (uint64, driver.Result) { return 0, success }
	}},
	{"high-water marks stay", []string{"driver: a pool counts"}, func(api *driver.API, sound driver.API) {
		api.MemPoolSetAttribute = func(p driver.MemPool, a driver.MemPoolAttribute, v uint64) driver.Result {
			if a == driver.MemPoolUsedHigh && v == 0 {
				return success
			}
			return sound.MemPoolSetAttribute(p, a, v)
		}
	}},
	{"trimming does nothing", []string{"driver: a pool keeps"}, func(api *driver.API, sound driver.API) {
		api.MemPoolTrimTo = func(driver.MemPool, uint64) driver.Result { return success }
	}},
	{"a pool serves its own device alone", []string{"driver: a pool serves"}, func(api *driver.API, sound driver.API) {
		api.MemAllocFromPoolAsync = func(n uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
			c, _ := sound.StreamGetCtx(s)
			first, _ := sound.DevicePrimaryCtxRetain(0)
			sound.DevicePrimaryCtxRelease(0)
			own := driver.Device(0)
			if c != first {
				own = 1
			}
			if pool, _ := sound.DeviceGetDefaultMemPool(own); pool != p {
				return 0, driver.ErrorInvalidValue
			}
			return sound.MemAllocFromPoolAsync(n, p, s)
		}
	}},
}

var hostMutations = []mutation{
	{"registering does nothing", []string{"driver: registered memory", "driver: memory can be registered", "driver: only registered",
		"driver: host memory that"}, func(api *driver.API, sound driver.API) {
		api.MemHostRegister = func(unsafe.Pointer, uint64, uint32) driver.Result { return success }
	}},
	{"anything is registered", []string{"driver: memory can be registered"}, func(api *driver.API, sound driver.API) {
		api.MemHostRegister = func(p unsafe.Pointer, n uint64, flags uint32) driver.Result {
			return instead(sound.MemHostRegister(p, n, flags), driver.ErrorHostMemoryAlreadyRegistered, success)
		}
	}},
	{"anything is unregistered, at once", []string{"driver: only registered", "driver: releasing"}, func(api *driver.API, sound driver.API) {
		api.MemHostUnregister = func(unsafe.Pointer) driver.Result { return success }
	}},
	{"device pointers are others", []string{"driver: host memory that"}, func(api *driver.API, sound driver.API) {
		api.MemHostGetDevicePointer = func(p unsafe.Pointer, flags uint32) (driver.DevicePtr, driver.Result) {
			addr, r := sound.MemHostGetDevicePointer(p, flags)
			return addr + 1<<40, r
		}
	}},
	{"rectangles begin at the left", []string{"driver: a rectangle is"}, func(api *driver.API, sound driver.API) {
		api.Memcpy2DAsync = func(c driver.Memcpy2D, s driver.Stream) driver.Result {
			c.SrcXInBytes = 0
			return sound.Memcpy2DAsync(c, s)
		}
	}},
	{"rectangles are a row short", []string{"driver: a rectangle is"}, func(api *driver.API, sound driver.API) {
		api.Memcpy2DAsync = func(c driver.Memcpy2D, s driver.Stream) driver.Result {
			c.Height--
			return sound.Memcpy2DAsync(c, s)
		}
	}},
	{"pitches are not checked", []string{"driver: a copy of rows"}, func(api *driver.API, sound driver.API) {
		api.Memcpy2DAsync = func(c driver.Memcpy2D, s driver.Stream) driver.Result {
			return instead(sound.Memcpy2DAsync(c, s), driver.ErrorInvalidValue, success)
		}
	}},
	{"rectangles have bytes", []string{"driver: a rectangle without"}, func(api *driver.API, sound driver.API) {
		api.Memcpy2DAsync = func(c driver.Memcpy2D, s driver.Stream) driver.Result {
			c.WidthInBytes, c.Height = max(c.WidthInBytes, 1), max(c.Height, 1)
			return sound.Memcpy2DAsync(c, s)
		}
	}},
	{"every device is a peer", []string{"driver: a device is no peer"}, func(api *driver.API, sound driver.API) {
		api.DeviceCanAccessPeer = func(_, _ driver.Device) (int32, driver.Result) { return 1, success }
	}},
	{"peer access is enabled twice", []string{"driver: peer access"}, func(api *driver.API, sound driver.API) {
		api.CtxEnablePeerAccess = func(c driver.Context, flags uint32) driver.Result {
			return instead(sound.CtxEnablePeerAccess(c, flags), driver.ErrorPeerAccessAlreadyEnabled, success)
		}
	}},
	{"access to pools is not given", []string{"driver: copies between two devices' pools", "driver: a device always"}, func(api *driver.API, sound driver.API) {
		api.MemPoolSetAccess = func(driver.MemPool, driver.MemAccess, uint64) driver.Result { return success }
	}},
}

func init() { mutations = append(append(mutations, poolMutations...), hostMutations...) }
