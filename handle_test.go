package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
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
	heard := make(chan error, 1)
	d.Driver().OnCleanupError(func(err error) { heard <- err })
	_, err := d.DefaultStream().RecordEvent(testgpu.Unpooled())
	require.NoError(t, err)
	failing.Store(true)
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Forgotten == 1 })
	err = <-heard
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

// Closing races with every other use: each call works or says closed.
func TestCloseRaces(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	other := testgpu.NewStream(t, d, nil)
	for range 200 {
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		e := cuda.NewEvent(nil)
		var wg sync.WaitGroup
		use := func(f func() error) {
			wg.Go(func() {
				for range 20 {
					if err := f(); err != nil && !errors.Is(err, cuda.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		use(func() error { return e.Record(s) })
		use(func() error { _, err := e.Query(); return err })
		use(func() error { return e.Wait(other) })
		use(func() error { return other.WaitStream(s) })
		use(func() error { return s.WaitStream(other) })
		use(e.Synchronize)
		use(s.Synchronize)
		use(func() error { return <-e.Done() })
		for range 2 {
			wg.Go(func() { _ = e.Close(); _ = s.Close() })
		}
		wg.Wait()
	}
}

// Every call on a device whose context has failed says so.
func TestLostDevice(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	e, err := s.RecordEvent(nil)
	require.NoError(t, err)
	gpu.Fault(s, driver.ErrorLaunchFailed)
	_, queryErr := e.Query()
	_, createErr := d.NewStream(nil)
	_, allocErr := cuda.Alloc[byte](d, 16)
	_, poolErr := cuda.AllocAsync[byte](s, 16)
	for _, err := range []error{s.Synchronize(), queryErr, createErr, allocErr, poolErr, e.Record(s), e.SynchronizeContext(t.Context()), d.Synchronize()} {
		require.ErrorIs(t, err, cuda.ErrDeviceLost)
		require.ErrorIs(t, err, driver.ErrorLaunchFailed)
		require.ErrorContains(t, err, "only a new process")
	}
}
