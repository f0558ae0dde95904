package native_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// However many owners a native event has had since a query began, it is not destroyed
// before the answer.
func TestNoQueryOfADestroyedEvent(t *testing.T) {
	var asking testgpu.Hook
	var destroyed atomic.Bool
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.EventDestroy = func(e driver.Event) driver.Result {
			destroyed.Store(true)
			return bare.EventDestroy(e)
		}
		api.EventQuery = func(e driver.Event) driver.Result {
			asking.Run()
			return bare.EventQuery(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	e := testgpu.NewRecordedEvent(t, s, nil)
	asking.Next(func() {
		require.NoError(t, e.Close())
		func() {
			other := testgpu.NewRecordedEvent(t, s, nil)
			other.Handle() // so that it will be destroyed
			require.NoError(t, other.Close())
		}()
		for range 20 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		require.False(t, destroyed.Load())
	})
	_, err := e.Query()
	require.ErrorIs(t, err, cuda.ErrClosed)
	testgpu.CollectUntil(t, destroyed.Load)
}

// A query that is on its way to the driver when the event becomes part of a capture
// does not end the capture.
func TestQueryOvertakenByACapture(t *testing.T) {
	var asking testgpu.Hook
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		query := api.EventQuery
		api.EventQuery = func(e driver.Event) driver.Result {
			asking.Run()
			return query(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	e := testgpu.NewRecordedEvent(t, s, nil)
	for _, ask := range []func() error{
		func() error { _, err := e.Query(); return err },
		func() error { _, err := e.Query(); return err }, // it has been in a capture before
		e.Synchronize,
	} {
		require.NoError(t, e.Record(s))
		inside, over, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		asking.Next(func() {
			go func() {
				g, err := s.Capture(func() error {
					err := e.Record(s)
					close(inside)
					<-over
					return errors.Join(err, e.Record(s), e.Wait(s))
				})
				ended <- errors.Join(err, g.Close())
			}()
			<-inside
		})
		require.ErrorIs(t, ask(), cuda.ErrCaptured)
		close(over)
		require.NoError(t, <-ended)
	}
	require.NoError(t, e.Close())
}

// The pool destroys what it has no room for.
func TestPoolOfEventsIsBounded(t *testing.T) {
	_, d, c := countedDevice(t)
	s := testgpu.NewStream(t, d, nil)
	var all []*cuda.Event
	for range 4200 {
		all = append(all, testgpu.NewRecordedEvent(t, s, nil))
	}
	for _, e := range all {
		require.NoError(t, e.Close())
	}
	all = nil
	testgpu.CollectUntil(t, func() bool { return c.destroyed.Load() == 104 })
}

// A record that gives the event another native event, because somebody waits for the old
// one, does not undo the record of another goroutine that comes and goes meanwhile.
func TestNoRecordIsLostToAnother(t *testing.T) {
	var behind testgpu.Hook
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		record := api.EventRecord
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			r := record(e, s)
			behind.Run()
			return r
		}
	})
	s, held, reader := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	b, out := testgpu.Filled(t, s, 1), testgpu.AllocHost[uint32](t, d, 1)
	require.NoError(t, s.Synchronize())
	e := testgpu.NewEvent(t, nil)
	defer gpu.Hold(held)()
	require.NoError(t, e.Record(held))
	ctx, cancel := context.WithCancel(context.Background())
	waiting := testgpu.Go(func() error { return e.SynchronizeContext(ctx) })
	testgpu.Parked(t, d.Driver(), 1)
	release := func() {}
	defer func() { release() }()
	behind.Next(func() { // another goroutine, after the driver has recorded for the first
		cancel()
		require.ErrorIs(t, testgpu.Receive(t, waiting), context.Canceled)
		release = gpu.Hold(s)
		require.NoError(t, cuda.Fill(s, b, 2))
		require.NoError(t, e.Record(s))
		require.False(t, testgpu.Query(t, e))
	})
	require.NoError(t, e.Record(s))
	require.False(t, testgpu.Query(t, e))
	require.NoError(t, e.Wait(reader))
	part, err := b.Range(0, 1)
	require.NoError(t, err)
	require.NoError(t, cuda.Copy[uint32](reader, out, part))
	release()
	require.NoError(t, reader.Synchronize())
	require.Equal(t, uint32(2), out.Slice()[0])
}
