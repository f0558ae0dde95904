package cuda_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

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

// AfterFree's function is called once, when the memory is free, also if that is so already.
func TestAfterFree(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	made := func() *cuda.HostBuffer[byte] {
		h, err := cuda.AllocHost[byte](b.Device(), 16, nil)
		require.NoError(t, err)
		return h
	}
	var calls atomic.Int32
	count := func() { calls.Add(1) }

	busy := made()
	busy.AfterFree(func() { t.Error("was replaced") })
	busy.AfterFree(count)
	part, err := busy.Range(0, 8)
	require.NoError(t, err)
	part.AfterFree(func() { t.Error("of a part") })
	release := gpu.Hold(s)
	dst := testgpu.Alloc[byte](t, b.Device(), 16)
	require.NoError(t, cuda.Copy[byte](s, dst, busy))
	require.NoError(t, busy.Close())
	require.Zero(t, calls.Load())
	release()
	testgpu.WaitUntil(t, func() bool { return calls.Load() == 1 })

	none := made()
	none.AfterFree(func() { t.Error("was taken back") })
	none.AfterFree(nil)
	require.NoError(t, none.Close())

	late := made()
	require.NoError(t, late.Close())
	late.AfterFree(count)
	require.EqualValues(t, 2, calls.Load())
	late.AfterFree(nil)
}

// A device without pools: the same calls, freed by the library.
func TestNoMemoryPools(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{NoMemoryPools: true})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	b, calls := testgpu.Counted(t, &testgpu.Backend{Driver: drv, Devices: make([]*cuda.Device, 1)}, nil)
	d := b.Device()
	_, err = d.MemoryPool()
	require.ErrorIs(t, err, errors.ErrUnsupported)
	home, user, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
	before, err := d.FreeMemory()
	require.NoError(t, err)
	givenBack := func() bool {
		n, err := d.FreeMemory()
		require.NoError(t, err)
		return n == before
	}

	// Another stream uses it.
	buf := testgpu.Filled(t, home, 1)
	require.NoError(t, user.WaitStream(home))
	release := gpu.Hold(user)
	require.NoError(t, cuda.Copy(user, out, buf))
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	require.NoError(t, home.Synchronize())
	time.Sleep(testgpu.Soon)
	require.Zero(t, calls.Count("MemFree"), "which would stop all that goes on on the device")
	require.False(t, givenBack())
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)
	testgpu.RequireAll(t, 1, out.Slice())

	// Its home uses it.
	release = gpu.Hold(home)
	buf = testgpu.Filled(t, home, 1)
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	time.Sleep(testgpu.Soon)
	require.Equal(t, 1, calls.Count("MemFree"))
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)

	// Nothing uses it, but the device is busy, and MemFree blocks.
	buf = testgpu.Filled(t, home, 1)
	require.NoError(t, home.Synchronize())
	release = gpu.Hold(third)
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)
	require.Zero(t, b.Driver.Stats().Buffers)
}
