package main

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// failingCopies makes all copies fail but the first few.
func failingCopies(api *driver.API, good int) {
	copyAsync, n := api.MemcpyAsync, 0
	api.MemcpyAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
		if n++; n > good {
			return driver.ErrorInvalidValue
		}
		return copyAsync(dst, src, bytes, s)
	}
}

// failingLaunches makes all launches of kernels fail but the first few.
func failingLaunches(api *driver.API, good int) {
	launch, n := api.LaunchKernel, 0
	api.LaunchKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
		if n++; n > good {
			return driver.ErrorLaunchOutOfResources
		}
		return launch(f, gx, gy, gz, bx, by, bz, shared, s, params, extra)
	}
}

// TestDemoReportsErrors makes one driver function fail.
func TestDemoReportsErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*driver.API)
		says []string
	}{
		"copy": {func(api *driver.API) {
			failingCopies(api, 2)
		}, []string{"batch 0: host to device: cuda: copy: CUDA_ERROR_INVALID_VALUE"}},
		"weights": {func(api *driver.API) {
			failingCopies(api, 0)
		}, []string{"the weights: cuda: copy: CUDA_ERROR_INVALID_VALUE"}},
		"module": {func(api *driver.API) {
			api.ModuleLoadDataEx = func(unsafe.Pointer, uint32, unsafe.Pointer, unsafe.Pointer) (driver.Module, driver.Result) {
				return 0, driver.ErrorUnsupportedPTXVersion
			}
		}, []string{"cuda: module load: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}},
		"kernel": {func(api *driver.API) {
			api.ModuleGetFunction = func(driver.Module, string) (driver.Func, driver.Result) { return 0, driver.ErrorNotFound }
		}, []string{"cuda: kernel lookup: CUDA_ERROR_NOT_FOUND", "purecuda_matmul"}},
		"first launch": {func(api *driver.API) {
			failingLaunches(api, 0)
		}, []string{"failed: cuda: kernel launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}},
		"launch": {func(api *driver.API) {
			failingLaunches(api, 1)
		}, []string{"batch 0: product: cuda: kernel launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}},
		"memory from the pool": {func(api *driver.API) {
			api.MemAllocFromPoolAsync = func(uint64, driver.MemPool, driver.Stream) (driver.DevicePtr, driver.Result) {
				return 0, driver.ErrorOutOfMemory
			}
		}, []string{"cuda: buffer alloc: CUDA_ERROR_OUT_OF_MEMORY", "from the pool of device 0", "try a smaller -size"}},
		"memory from the pool later": {func(api *driver.API) {
			alloc, n := api.MemAllocFromPoolAsync, 0
			api.MemAllocFromPoolAsync = func(bytes uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
				if n++; n > slots+1 {
					return 0, driver.ErrorOutOfMemory
				}
				return alloc(bytes, p, s)
			}
		}, []string{"batch 0: cuda: buffer alloc: CUDA_ERROR_OUT_OF_MEMORY"}},
		"device memory": {func(api *driver.API) {
			api.MemAlloc = func(uint64) (driver.DevicePtr, driver.Result) { return 0, driver.ErrorOutOfMemory }
		}, []string{"cuda: buffer alloc: CUDA_ERROR_OUT_OF_MEMORY", "try a smaller -size"}},
		"pinned memory": {func(api *driver.API) {
			alloc, n := api.MemHostAlloc, 0
			api.MemHostAlloc = func(bytes uint64, flags uint32) (p unsafe.Pointer, r driver.Result) {
				if n++; n > 3 {
					return nil, driver.ErrorOutOfMemory
				}
				return alloc(bytes, flags)
			}
		}, []string{"host buffer alloc", "4.2 MiB of pinned memory in all", "fewer -batches"}},
		"close": {func(api *driver.API) {
			destroy := api.StreamDestroy
			api.StreamDestroy = func(s driver.Stream) driver.Result {
				destroy(s)
				return driver.ErrorInvalidHandle
			}
		}, []string{"closing: cuda: stream close: "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) { c.fail(api) }), "demo -size 256KiB")
				assert.Equal(t, exitFailed, r.code)
				for _, says := range c.says {
					assert.Contains(t, r.stderr, says)
				}
				assert.NotContains(t, r.stdout, "ok")
			})
		})
	}
}

func TestDemoReportsPeerAccessError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(2, func(_ *cudatest.GPU, api *driver.API) {
			api.CtxEnablePeerAccess = func(driver.Context, uint32) driver.Result { return driver.ErrorTooManyPeers }
		}), "demo")
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "failed: cuda: peer access: CUDA_ERROR_TOO_MANY_PEERS")
	})
}

// TestLeftOpen checks that everything that is counted is looked at.
func TestLeftOpen(t *testing.T) {
	assert.Empty(t, leftOpen(cuda.Stats{}))
	for i := range reflect.TypeFor[cuda.Stats]().NumField() {
		var s cuda.Stats
		v := reflect.ValueOf(&s).Elem()
		v.Field(i).SetInt(2)
		assert.NotEmpty(t, leftOpen(s), v.Type().Field(i).Name)
	}
	assert.Equal(t, "2 modules, 1 graph", leftOpen(cuda.Stats{Modules: 2, Graphs: 1}))
}

// TestLeftovers checks that what goes a little later is waited for, and nothing else.
func TestLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
		require.NoError(t, err)
		dev, err := drv.OpenDevice(0)
		require.NoError(t, err)
		start := time.Now()
		assert.Empty(t, leftovers(drv))
		assert.Zero(t, time.Since(start))

		late, err := dev.NewStream(nil)
		require.NoError(t, err)
		time.AfterFunc(lateFrees/2, func() { assert.NoError(t, late.Close()) })
		assert.Empty(t, leftovers(drv))
		assert.InDelta(t, lateFrees/2, time.Since(start), float64(2*time.Millisecond))

		forgotten, err := dev.NewStream(nil)
		require.NoError(t, err)
		start = time.Now()
		assert.Equal(t, "1 stream", leftovers(drv))
		assert.Equal(t, lateFrees, time.Since(start))
		require.NoError(t, forgotten.Close())
	})
}

// interrupted runs the demo, which hangs after its first copy and is interrupted
// after a second. The device is let go after another time.
func interrupted(t *testing.T, line string, letGo time.Duration) result {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, nil)
	defer cancel()
	return try(ctx, simulated(1, func(gpu *cudatest.GPU, api *driver.API) {
		onCopy(1, func(_ *driver.API, _, _ driver.DevicePtr, s driver.Stream) {
			time.AfterFunc(time.Second+letGo, gpu.Hold(cudatest.Handle(s)))
		})(gpu, api)
	}), line)
}

func TestDemoInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := interrupted(t, "demo -size 256KiB", grace/2)
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, "purecuda demo (simulated): failed: interrupted\n", r.stderr)
		assert.NotContains(t, r.stdout, "ok")
		assert.GreaterOrEqual(t, time.Since(start), time.Second+grace/2, "memory was freed while it was in use")
	})
}

func TestDemoInterruptedWhileDeviceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := interrupted(t, "demo -size 256KiB", 2*grace)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "interrupted\nthe device did not finish its work in another 5s, so nothing was closed")
	})
}
