package cuda_test

import (
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

// However many owners a native event has had since a question began, it is not destroyed
// before the answer.
func TestNoQuestionForADestroyedEvent(t *testing.T) {
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
	e := recorded(t, s, nil)
	asking.Next(func() {
		require.NoError(t, e.Close())
		func() {
			other := recorded(t, s, nil)
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

// A question that is on its way to the driver when the event becomes part of a capture
// does not end that.
func TestQuestionOvertakenByACapture(t *testing.T) {
	var asking testgpu.Hook
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		query := api.EventQuery
		api.EventQuery = func(e driver.Event) driver.Result {
			asking.Run()
			return query(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	e := recorded(t, s, nil)
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

// What is too much for the pool goes.
func TestPoolOfEventsIsBounded(t *testing.T) {
	_, d, c := countedDevice(t)
	s := testgpu.NewStream(t, d, nil)
	var all []*cuda.Event
	for range 4200 {
		all = append(all, recorded(t, s, nil))
	}
	for _, e := range all {
		require.NoError(t, e.Close())
	}
	all = nil
	testgpu.CollectUntil(t, func() bool { return c.destroyed.Load() == 104 })
}
