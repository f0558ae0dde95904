package cuda_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// stuck is a driver function that can be made to hang.
type stuck struct {
	gate atomic.Pointer[chan struct{}]
	in   chan struct{}
}

func newStuck() *stuck { return &stuck{in: make(chan struct{}, 10)} }

func (s *stuck) pass() {
	if c := s.gate.Load(); c != nil {
		s.in <- struct{}{}
		<-*c
	}
}

// close makes calls hang until release is called.
func (s *stuck) close() (release func()) {
	c := make(chan struct{})
	s.gate.Store(&c)
	return func() {
		s.gate.Store(nil)
		close(c)
	}
}

// The driver may take long to make an event, beside a busy device or another
// thread. Who cancels, closes, or waits for something else does not wait for that.
func TestNobodyWaitsBehindEventCreate(t *testing.T) {
	create := newStuck()
	_, b := simulatedDevices(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventCreate
		api.EventCreate = func(f uint32) (driver.Event, driver.Result) { create.pass(); return bare(f) }
	})
	var streams [5]*cuda.Stream
	var releases [5]func()
	for i := range streams {
		streams[i] = newStream(t, b.dev(), nil)
		releases[i] = hold(t, streams[i])
	}
	e := newEvent(t, nil)
	require.NoError(t, e.Record(streams[0]))
	waiting := started(e.Synchronize)
	ctx, cancel := context.WithCancel(ctxBackground)
	cancelled := started(func() error { return streams[1].SynchronizeContext(ctx) })
	closing, done := streams[2].Done(), streams[3].Done()
	parked(t, b.drv, 4)
	release := create.close()
	other := started(streams[4].Synchronize)
	<-create.in
	cancel()
	require.ErrorIs(t, told(t, cancelled), context.Canceled)
	require.NoError(t, told(t, started(streams[2].Close)))
	require.ErrorIs(t, told(t, closing), cuda.ErrClosed)
	releases[3]() // gives an event back
	require.NoError(t, told(t, done))
	releases[0]()
	require.NoError(t, told(t, waiting))
	release()
	for _, r := range releases {
		r()
	}
	require.NoError(t, told(t, other))
}

// WaitAll asks for each a few times, however many are done already, and looks at its
// context meanwhile.
func TestWaitAllAsksLittle(t *testing.T) {
	_, b := simulatedDevices(t, cudatest.Config{}, nil)
	busy, idle := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
	release := hold(t, busy)
	defer release()
	const n = 1000
	var work []cuda.Waitable
	for i := range 2 * n {
		e := newEvent(t, nil)
		require.NoError(t, e.Record([]*cuda.Stream{busy, idle}[i/n]))
		work = append(work, e)
	}
	before := b.drv.WaitStats().Queries
	ctx, cancel := context.WithTimeout(ctxBackground, 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, cuda.WaitAll(ctx, work...), context.DeadlineExceeded)
	require.Less(t, b.drv.WaitStats().Queries-before, uint64(20*n))
}
