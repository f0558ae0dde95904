package cuda_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestForgottenObjectsAreClosedAndCounted(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	for range 10 {
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		_, err = s.RecordEvent(nil)
		require.NoError(t, err)
		_, err = cuda.Alloc[uint8](d, 100)
		require.NoError(t, err)
	}
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Forgotten: 30} })
}

func TestWhatIsClosedIsNotForgotten(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	e, err := s.RecordEvent(nil)
	require.NoError(t, err)
	require.Equal(t, cuda.Stats{Streams: 1, Events: 1}, d.Driver().Stats())
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
	s, e = nil, nil
	runtime.GC()
	runtime.GC()
	require.Equal(t, cuda.Stats{}, d.Driver().Stats())
}

func TestCleanupFailuresReachTheHook(t *testing.T) {
	var failing atomic.Bool
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		destroy := api.EventDestroy
		api.EventDestroy = func(e driver.Event) driver.Result {
			r := destroy(e)
			if failing.Load() {
				return driver.ErrorLaunchFailed
			}
			return r
		}
	})
	failures := make(chan error, 1)
	d.Driver().OnCleanupError(func(err error) { failures <- err })
	_, err := d.DefaultStream().RecordEvent(testgpu.Unpooled())
	require.NoError(t, err)
	failing.Store(true)
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Forgotten == 1 })
	err = <-failures
	require.ErrorIs(t, err, driver.ErrorLaunchFailed)
	require.ErrorIs(t, err, cuda.ErrDeviceLost)
	d.Driver().OnCleanupError(nil)
}

// A failed constructor leaves nothing behind.
func TestFailedConstructors(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.StreamCreateWithPriority = func(uint32, int32) (driver.Stream, driver.Result) { return 0, driver.ErrorOutOfMemory }
		api.EventCreate = func(uint32) (driver.Event, driver.Result) { return 0, driver.ErrorOutOfMemory }
		api.MemAlloc = func(uint64) (driver.DevicePtr, driver.Result) { return 0, driver.ErrorOutOfMemory }
		api.IPCOpenEventHandle = func(driver.IPCEventHandle) (driver.Event, driver.Result) { return 0, driver.ErrorMapFailed }
	})
	_, streamErr := d.NewStream(nil)
	_, eventErr := d.DefaultStream().RecordEvent(nil)
	_, bufferErr := cuda.Alloc[uint8](d, 1)
	_, openErr := d.OpenEvent(driver.IPCEventHandle{}, nil)
	for _, err := range []error{streamErr, eventErr, bufferErr} {
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	}
	require.ErrorIs(t, openErr, driver.ErrorMapFailed)
	require.Equal(t, cuda.Stats{}, d.Driver().Stats())
}
