package cuda_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

func TestWaitStats(t *testing.T) {
	rule(t, "06 the figures about waits", 1, func(t *testing.T, b *backend) {
		b, c := counted(t, b, nil)
		require.Equal(t, cuda.WaitStats{}, b.drv.WaitStats())
		s := newStream(t, b.dev(), nil)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		require.NoError(t, s.Synchronize())
		require.NoError(t, e.Synchronize())
		quiet := b.drv.WaitStats()
		require.LessOrEqual(t, quiet.Parked, uint64(1), "the work is short")

		release := block(t, s)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithCancel(t.Context())
		var going, given []<-chan error
		for range 20 {
			going = append(going, e.Done(), started(e.Synchronize), s.Done())
			given = append(given, started(func() error { return e.SynchronizeContext(ctx) }))
		}
		parked(t, b.drv, 80)
		now := b.drv.WaitStats()
		require.Equal(t, 1, now.Watchers)
		require.Equal(t, quiet.Parked+80, now.Parked)
		require.Equal(t, quiet.Woken, now.Woken)
		require.Equal(t, quiet.Cancelled, now.Cancelled)
		becomes(t, func() bool { return b.drv.WaitStats().Wakeups > now.Wakeups+10 })
		require.Greater(t, b.drv.WaitStats().Queries, now.Queries)

		cancel()
		for _, done := range given {
			require.Error(t, told(t, done))
		}
		now = b.drv.WaitStats()
		require.Equal(t, 60, now.Waiting)
		require.Equal(t, quiet.Cancelled+20, now.Cancelled)
		require.Equal(t, quiet.Woken, now.Woken)
		require.Error(t, e.SynchronizeContext(ctx), "not parked at all")
		require.Equal(t, quiet.Cancelled+20, b.drv.WaitStats().Cancelled)

		release()
		for _, done := range going {
			require.NoError(t, told(t, done))
		}
		nobodyWaits(t, b.drv)
		now = b.drv.WaitStats()
		require.Equal(t, quiet.Parked+80, now.Parked)
		require.Equal(t, quiet.Woken+60, now.Woken)
		require.LessOrEqual(t, now.Queries, uint64(c.count("EventQuery")+c.count("StreamQuery")), "each is a call")
		require.Greater(t, now.Queries, uint64(c.count("EventQuery"))/2)
		made := c.during(func() { time.Sleep(soon) })
		require.Empty(t, made, "nobody waits, and nothing is asked")
		require.Equal(t, now, b.drv.WaitStats())
		require.Empty(t, c.during(func() { b.drv.WaitStats() }))
	})
}

// Nothing is asked any more once the last wait is over, however it ends.
func TestWatchersEnd(t *testing.T) {
	for name, end := range map[string]func(cancel, release func(), e *cuda.Event) error{
		"cancelled": func(cancel, _ func(), _ *cuda.Event) error { cancel(); return nil },
		"done":      func(_, release func(), _ *cuda.Event) error { release(); return nil },
		"closed":    func(_, _ func(), e *cuda.Event) error { return e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := simulatedDevices(t, cudatest.Config{}, nil)
			before := runtime.NumGoroutine()
			for range 50 {
				s, err := b.dev().NewStream(nil)
				require.NoError(t, err)
				release := gpu.Hold(s)
				e, err := s.RecordEvent(nil)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				wait := started(func() error { return e.SynchronizeContext(ctx) })
				if name != "cancelled" {
					e.Done() // and nobody receives
				}
				becomes(t, func() bool { return b.drv.WaitStats().Waiting > 0 && b.drv.WaitStats().Watchers == 1 })
				require.NoError(t, end(cancel, release, e))
				told(t, wait)
				nobodyWaits(t, b.drv)
				asked := b.drv.WaitStats().Queries
				time.Sleep(time.Millisecond)
				require.Equal(t, asked, b.drv.WaitStats().Queries)
				cancel()
				release()
				require.NoError(t, e.Close())
				require.NoError(t, s.Close())
			}
			becomes(t, func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// Long waits cost little: a watcher looks a thousand times a second at most, and
// does not ask for each wait.
func TestLongWaitsAreCheap(t *testing.T) {
	gpu, b := simulatedDevices(t, cudatest.Config{}, nil)
	s := newStream(t, b.dev(), nil)
	release := gpu.Hold(s)
	defer release()
	e := newEvent(t, nil)
	require.NoError(t, e.Record(s))
	for range 1000 {
		e.Done()
	}
	time.Sleep(200 * time.Millisecond)
	before, began := b.drv.WaitStats(), time.Now()
	time.Sleep(200 * time.Millisecond)
	after, took := b.drv.WaitStats(), time.Since(began)
	looks := uint64(took/(100*time.Microsecond)) + 10
	require.LessOrEqual(t, after.Wakeups-before.Wakeups, looks)
	require.LessOrEqual(t, after.Queries-before.Queries, looks)
	require.NotEqual(t, before.Wakeups, after.Wakeups)
	require.NoError(t, e.Close())
	nobodyWaits(t, b.drv)
}

// The events by which the library learns when a stream or a device is done are made
// once and recorded again, also after waits that were given up.
func TestWaitsMakeFewEvents(t *testing.T) {
	rule(t, "06 waits use their events again", 1, func(t *testing.T, b *backend) {
		b, c := counted(t, b, nil)
		s := newStream(t, b.dev(), nil)
		const atOnce = 6
		for range 20 {
			release := block(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			given := started(func() error { return cuda.WaitAll(ctx, s, b.dev()) })
			all := []<-chan error{s.Done(), b.dev().Done(), started(s.Synchronize), started(b.dev().Synchronize)}
			parked(t, b.drv, atOnce)
			cancel()
			require.ErrorIs(t, told(t, given), context.Canceled)
			release()
			for _, done := range all {
				require.NoError(t, told(t, done))
			}
		}
		require.LessOrEqual(t, c.count("EventCreate"), atOnce)
		require.Zero(t, b.drv.Stats().Events)
	})
}
