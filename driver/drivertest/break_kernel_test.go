package drivertest_test

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func init() { mutations = append(mutations, kernelMutations...) }

// launches is LaunchKernel in short.
type launches func(f driver.Func, grid, block [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result

// relaunch replaces LaunchKernel by what f makes of it.
func relaunch(api *driver.API, sound driver.API, f func(next launches) launches) {
	mutant := f(func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
		return sound.LaunchKernel(f, g[0], g[1], g[2], b[0], b[1], b[2], shared, s, params, extra)
	})
	api.LaunchKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
		return mutant(f, [3]uint32{gx, gy, gz}, [3]uint32{bx, by, bz}, shared, s, params, extra)
	}
}

var kernelMutations = []mutation{
	// Modules and functions.
	{"any image is one", []string{"driver: a bad image"}, func(api *driver.API, sound driver.API) {
		api.ModuleLoadDataEx = func(image unsafe.Pointer, n uint32, options, values unsafe.Pointer) (driver.Module, driver.Result) {
			m, r := sound.ModuleLoadDataEx(image, n, options, values)
			return m, instead(r, driver.ErrorInvalidImage, success)
		}
	}},
	{"the compiler is silent", []string{"driver: a bad image"}, func(api *driver.API, sound driver.API) {
		api.ModuleLoadDataEx = func(image unsafe.Pointer, _ uint32, _, _ unsafe.Pointer) (driver.Module, driver.Result) {
			return sound.ModuleLoadDataEx(image, 0, nil, nil)
		}
	}},
	{"loading needs no context", []string{"driver: a module needs"}, func(api *driver.API, sound driver.API) {
		api.ModuleLoadDataEx = func(image unsafe.Pointer, n uint32, options, values unsafe.Pointer) (driver.Module, driver.Result) {
			m, r := sound.ModuleLoadDataEx(image, n, options, values)
			return m, instead(r, driver.ErrorInvalidContext, success)
		}
	}},
	{"unloading needs a context", []string{"driver: a module needs"}, func(api *driver.API, sound driver.API) {
		api.ModuleUnload = func(m driver.Module) driver.Result {
			if c, _ := sound.CtxGetCurrent(); c == 0 {
				return driver.ErrorInvalidContext
			}
			return sound.ModuleUnload(m)
		}
	}},
	{"unloading is relaxed", []string{"driver: no module"}, func(api *driver.API, sound driver.API) {
		api.ModuleUnload = func(m driver.Module) driver.Result {
			previous, _ := sound.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			defer sound.ThreadExchangeStreamCaptureMode(previous)
			return sound.ModuleUnload(m)
		}
	}},
	{"every function is there", []string{"driver: a function that"}, func(api *driver.API, sound driver.API) {
		api.ModuleGetFunction = func(m driver.Module, name string) (driver.Func, driver.Result) {
			f, r := sound.ModuleGetFunction(m, name)
			return f, instead(r, driver.ErrorNotFound, success)
		}
	}},
	{"parameters are packed", []string{"driver: a struct is"}, func(api *driver.API, sound driver.API) {
		api.FuncGetParamInfo = func(f driver.Func, i uint64) (offset, size uint64, r driver.Result) {
			offset, size, r = sound.FuncGetParamInfo(f, i)
			return offset / 2, size, r
		}
	}},
	{"parameters do not end", []string{"driver: a struct is"}, func(api *driver.API, sound driver.API) {
		api.FuncGetParamInfo = func(f driver.Func, i uint64) (offset, size uint64, r driver.Result) {
			offset, size, r = sound.FuncGetParamInfo(f, i)
			return offset, size, instead(r, driver.ErrorInvalidValue, success)
		}
	}},
	{"shared memory cannot be asked for", []string{"driver: more shared"}, func(api *driver.API, sound driver.API) {
		api.FuncSetAttribute = func(driver.Func, driver.FuncAttribute, int32) driver.Result { return success }
	}},
	{"nothing fits a multiprocessor", []string{"driver: occupancy"}, func(api *driver.API, sound driver.API) {
		api.OccupancyMaxActiveBlocksPerMultiprocessor = func(f driver.Func, size int32, shared uint64) (int32, driver.Result) {
			_, r := sound.OccupancyMaxActiveBlocksPerMultiprocessor(f, size, shared)
			return 0, r
		}
	}},
	{"blocks have no limit", []string{"driver: occupancy"}, func(api *driver.API, sound driver.API) {
		api.OccupancyMaxPotentialBlockSize = func(f driver.Func, sharedFor uintptr, shared uint64, _ int32) (int32, int32, driver.Result) {
			return sound.OccupancyMaxPotentialBlockSize(f, sharedFor, shared, 0)
		}
	}},

	// Launches.
	{"kernels run at once", []string{"driver: a kernel has"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				other, r := createOn(sound, s)
				if r != success {
					return r
				}
				defer sound.StreamDestroy(other)
				next(f, g, b, shared, other, params, extra)
				return sound.StreamSynchronize(other)
			}
		})
	}},
	{"buffers of arguments are ignored", []string{"driver: arguments"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				if extra != nil {
					return success
				}
				return next(f, g, b, shared, s, params, nil)
			}
		})
	}},
	{"arguments are read late", []string{"driver: arguments"}, func(api *driver.API, sound driver.API) {
		var mu sync.Mutex
		waiting := map[driver.Stream][]func() driver.Result{}
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				mu.Lock()
				defer mu.Unlock()
				waiting[s] = append(waiting[s], func() driver.Result { return next(f, g, b, shared, s, params, extra) })
				return success
			}
		})
		flush := func(s driver.Stream) {
			mu.Lock()
			defer mu.Unlock()
			for _, launch := range waiting[s] {
				launch()
			}
			delete(waiting, s)
		}
		api.StreamSynchronize = func(s driver.Stream) driver.Result {
			flush(s)
			return sound.StreamSynchronize(s)
		}
		api.MemcpyDtoHAsync = func(dst unsafe.Pointer, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			flush(s)
			return sound.MemcpyDtoHAsync(dst, src, n, s)
		}
	}},
	{"launches need a context", []string{"driver: a launch on a created"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				if c, _ := sound.CtxGetCurrent(); c == 0 {
					return driver.ErrorInvalidContext
				}
				return next(f, g, b, shared, s, params, extra)
			}
		})
	}},
	{"no launch is bad", []string{"driver: bad launches", "driver: more shared"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				return instead(next(f, g, b, shared, s, params, extra), driver.ErrorInvalidValue, success)
			}
		})
	}},
	{"kernels run on any device", []string{"driver: a kernel does not"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				return instead(next(f, g, b, shared, s, params, extra), driver.ErrorInvalidHandle, success)
			}
		})
	}},
	{"kernels are dropped", []string{"driver: a spin", "driver: a struct is", "driver: a kernel is a node"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(driver.Func, [3]uint32, [3]uint32, uint32, driver.Stream, unsafe.Pointer, unsafe.Pointer) driver.Result {
				return success
			}
		})
	}},
	{"cooperative launches are dropped", []string{"driver: a cooperative"}, func(api *driver.API, sound driver.API) {
		api.LaunchCooperativeKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params unsafe.Pointer) driver.Result {
			if gx > 1e5 {
				return driver.ErrorCooperativeLaunchTooLarge
			}
			return success
		}
	}},
	{"cooperative launches are others", []string{"driver: a cooperative"}, func(api *driver.API, sound driver.API) {
		api.LaunchCooperativeKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params unsafe.Pointer) driver.Result {
			return sound.LaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, nil)
		}
	}},

	// Host functions.
	{"host functions are called early", []string{"driver: a host function waits", "driver: a graph calls"}, func(api *driver.API, sound driver.API) {
		api.LaunchHostFunc = func(_ driver.Stream, f driver.HostFunc) driver.Result {
			f.Call()
			return success
		}
	}},
	{"nothing waits for host functions", []string{"driver: work waits"}, func(api *driver.API, sound driver.API) {
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			return sound.LaunchHostFunc(s, driver.NewHostFunc(func() { go f.Call() }))
		}
	}},
	{"host functions are called twice", []string{"driver: a host function waits", "driver: a host function is", "driver: a graph calls"}, func(api *driver.API, sound driver.API) {
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			return max(sound.LaunchHostFunc(s, f), sound.LaunchHostFunc(s, f))
		}
	}},
	{"host functions wait for somebody to ask", []string{"driver: a host function is"}, func(api *driver.API, sound driver.API) {
		var mu sync.Mutex
		var late []func()
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, func() { sound.LaunchHostFunc(s, f) })
			return success
		}
		api.StreamSynchronize = func(s driver.Stream) driver.Result {
			mu.Lock()
			for _, launch := range late {
				launch()
			}
			late = nil
			mu.Unlock()
			return sound.StreamSynchronize(s)
		}
	}},
	{"host functions may launch", []string{"driver: a host function may"}, func(api *driver.API, sound driver.API) {
		relaunch(api, sound, func(next launches) launches {
			return func(f driver.Func, g, b [3]uint32, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
				return instead(next(f, g, b, shared, s, params, extra), driver.ErrorNotPermitted, success)
			}
		})
	}},
	{"host functions may not ask", []string{"driver: a host function may"}, func(api *driver.API, sound driver.API) {
		api.EventQuery = func(e driver.Event) driver.Result {
			if _, r := sound.CtxGetCurrent(); r == driver.ErrorNotPermitted {
				return r
			}
			return sound.EventQuery(e)
		}
	}},
}

// createOn makes a stream of the same context as s.
func createOn(sound driver.API, s driver.Stream) (driver.Stream, driver.Result) {
	c, r := sound.StreamGetCtx(s)
	if r != success {
		return 0, r
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sound.CtxPushCurrent(c)
	defer sound.CtxPopCurrent()
	return sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
}
