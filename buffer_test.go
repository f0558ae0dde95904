package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Plain memory gets what the pool keeps for later, if there is no other.
func TestAllocTakesWhatThePoolKeeps(t *testing.T) {
	trimmed := false
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		alloc, trim := api.MemAlloc, api.MemPoolTrimTo
		api.MemAlloc = func(n uint64) (driver.DevicePtr, driver.Result) {
			if !trimmed {
				return 0, driver.ErrorOutOfMemory
			}
			return alloc(n)
		}
		api.MemPoolTrimTo = func(p driver.MemPool, keep uint64) driver.Result {
			trimmed = true
			return trim(p, keep)
		}
	})
	_, err := cuda.Alloc[uint8](d, 16)
	require.ErrorIs(t, err, driver.ErrorOutOfMemory, "there is no pool yet")
	s := testgpu.NewStream(t, d, nil)
	require.NoError(t, testgpu.AllocAsync[uint8](t, s, 16).Close())
	require.NoError(t, s.Synchronize())
	testgpu.Alloc[uint8](t, d, 16)
}

// The garbage collector closes what was forgotten, once no part of it is left.
func TestForgottenBuffers(t *testing.T) {
	forget := func(t *testing.T, api *driver.API) {
		drv, err := cuda.OpenDriver(api)
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		part := func() *cuda.Buffer[uint32] {
			b, err := cuda.AllocAsync[uint32](home, 16)
			require.NoError(t, err)
			half := testgpu.Range(t, b, 8, 16)
			view, err := cuda.View[int32](half)
			require.NoError(t, err)
			part, err := cuda.View[uint32](view)
			require.NoError(t, err)
			return part
		}()
		for range 5 {
			runtime.GC()
		}
		require.Equal(t, 0, drv.Stats().Forgotten)
		require.NoError(t, user.WaitStream(home))
		require.NoError(t, cuda.Fill(user, part, 1))
		runtime.KeepAlive(part)
		testgpu.CollectUntil(t, func() bool { return drv.Stats().Forgotten == 1 })
		testgpu.CollectUntil(t, func() bool { return drv.Stats().Buffers == 0 })
		pool, err := d.MemoryPool()
		require.NoError(t, err)
		testgpu.CollectUntil(t, func() bool { // it is counted before it is freed
			stats, err := pool.Stats()
			return err == nil && stats.Used == 0
		})

		plain, err := cuda.Alloc[uint32](d, 16)
		require.NoError(t, err)
		require.NoError(t, cuda.Fill(user, plain, 1))
		testgpu.CollectUntil(t, func() bool { return drv.Stats().Forgotten == 2 })
		testgpu.CollectUntil(t, func() bool { return drv.Stats().Buffers == 0 })
	}
	t.Run("simulated", func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		forget(t, gpu.API())
	})
	t.Run("real", func(t *testing.T) { forget(t, testgpu.RealDriver(t).API()) })
}
