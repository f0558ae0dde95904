package cuda_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// What options mean to the driver, which no answer of it shows.
func TestFlagsReachTheDriver(t *testing.T) {
	var event, host, record, wait uint32
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) { event = flags; return bare.EventCreate(flags) }
		api.MemHostAlloc = func(n uint64, flags uint32) (p unsafe.Pointer, r driver.Result) {
			host = flags
			return bare.MemHostAlloc(n, flags)
		}
		api.EventRecordWithFlags = func(e driver.Event, s driver.Stream, flags uint32) driver.Result {
			record = flags
			return bare.EventRecordWithFlags(e, s, flags)
		}
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			wait = flags
			return bare.StreamWaitEvent(s, e, flags)
		}
	})
	s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	require.NoError(t, testgpu.NewEvent(t, nil).Record(s)) // the one that was made to see what the driver wants
	for want, opts := range map[uint32]cuda.EventOptions{
		driver.EventDisableTiming:                            {},
		driver.EventDefault:                                  {Timing: true},
		driver.EventDisableTiming | driver.EventBlockingSync: {Blocking: true},
		driver.EventBlockingSync:                             {Blocking: true, Timing: true},
		driver.EventDisableTiming | driver.EventInterprocess: {Interprocess: true},
	} {
		require.NoError(t, testgpu.NewEvent(t, &opts).Record(s))
		require.Equal(t, want, event, "%+v", opts)
	}
	event = 0
	require.NoError(t, s.WaitStream(other))
	require.Equal(t, driver.EventDisableTiming, event, "the event behind WaitStream")
	testgpu.AllocHost[uint8](t, d, 1)
	require.Equal(t, driver.MemHostAllocPortable, host)

	api := d.Driver().API()
	external := testgpu.NewEvent(t, &cuda.EventOptions{External: true})
	require.NoError(t, external.Record(s))
	require.NoError(t, external.Wait(s))
	require.Zero(t, wait)
	require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
	require.NoError(t, external.Record(s))
	require.NoError(t, external.Wait(s))
	require.Equal(t, driver.EventRecordExternal, record)
	require.Equal(t, driver.EventWaitExternal, wait)
	g, r := api.StreamEndCapture(s.Handle())
	require.Equal(t, driver.Success, r)
	require.Equal(t, driver.Success, api.GraphDestroy(g))
}

// The failure of a destruction that no Close can return reaches the hook, and
// that the process is ending is no failure.
func TestLastReleaseDestroys(t *testing.T) {
	for answer, heard := range map[driver.Result]bool{driver.ErrorInvalidHandle: true, driver.ErrorDeinitialized: false} {
		entered, leave := make(chan struct{}), make(chan struct{})
		_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
			bare := *api
			api.StreamQuery = func(s driver.Stream) driver.Result {
				close(entered)
				<-leave
				return bare.StreamQuery(s)
			}
			api.StreamDestroy = func(s driver.Stream) driver.Result { bare.StreamDestroy(s); return answer }
		})
		var errs []error
		d.Driver().OnCleanupError(func(err error) { errs = append(errs, err) })
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		done := make(chan error)
		go func() {
			_, err := s.Query()
			done <- err
		}()
		<-entered
		require.NoError(t, s.Close(), "the call in the driver still holds it")
		require.Equal(t, 1, d.Driver().Stats().Streams)
		close(leave)
		require.NoError(t, <-done)
		require.Zero(t, d.Driver().Stats().Streams)
		if heard {
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], answer)
		} else {
			require.Empty(t, errs)
		}
	}
}

// The garbage collector's closing must not end anybody's capture, and must not
// keep other cleanups waiting for a device.
func TestCollectedObjectsDisturbNobody(t *testing.T) {
	var relaxed, strict atomic.Int32
	gpu, d := testgpu.SimulatedDevice(t, func(table *driver.API) {
		bare := *table
		table.EventDestroy = func(e driver.Event) driver.Result {
			mode, _ := bare.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			bare.ThreadExchangeStreamCaptureMode(mode)
			if mode == driver.CaptureModeRelaxed {
				relaxed.Add(1)
			} else {
				strict.Add(1)
			}
			return bare.EventDestroy(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	release := gpu.Hold(s)
	func() {
		_, err := cuda.Alloc[uint8](d, 1) // to be freed when the device is idle
		require.NoError(t, err)
		_, err = s.RecordEvent(testgpu.Unpooled())
		require.NoError(t, err)
	}()
	other := new([16]int)
	collected := make(chan struct{})
	runtime.AddCleanup(other, func(c chan struct{}) { close(c) }, collected)
	testgpu.CollectUntil(t, func() bool { return relaxed.Load() == 1 })
	require.Zero(t, strict.Load())
	select {
	case <-collected:
	case <-time.After(5 * time.Second):
		t.Fatal("another cleanup waits for the device")
	}
	release()
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Buffers == 0 })
}
