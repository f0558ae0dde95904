package cuda_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestNilEventIsAnError(t *testing.T) {
	var e *cuda.Event
	_, queryErr := e.Query()
	_, elapsedErr := cuda.NewEvent(testgpu.Timed()).ElapsedTime(nil)
	_, handleErr := e.IPCHandle()
	for _, err := range []error{queryErr, elapsedErr, handleErr, e.Record(nil), e.Wait(nil), e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}
	require.NoError(t, e.Close())
	require.Zero(t, e.Handle())
	require.Nil(t, e.Device())
	require.Equal(t, "cuda.Event(nil)", e.String())
	require.ErrorIs(t, cuda.NewEvent(nil).Record(nil), cuda.ErrInvalid)
	var typed *cuda.Error
	require.True(t, errors.As(e.Synchronize(), &typed))
	require.Equal(t, "event synchronize", typed.Op)
}

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
