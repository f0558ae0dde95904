package rules_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestWaitStats(t *testing.T) {
	testgpu.Rule(t, "06 the figures about waits", 1, func(t *testing.T, b *testgpu.Backend) {
		b, c := testgpu.Counted(t, b, nil)
		require.Equal(t, cuda.WaitStats{}, b.Driver.WaitStats())
		s := testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		require.NoError(t, s.Synchronize())
		require.NoError(t, e.Synchronize())
		quiet := b.Driver.WaitStats()
		require.LessOrEqual(t, quiet.Parked, uint64(1), "the work is short")

		release := testgpu.Hold(t, s)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithCancel(t.Context())
		var going, given []<-chan error
		for range 20 {
			going = append(going, e.Done(), testgpu.Go(e.Synchronize), s.Done())
			given = append(given, testgpu.Go(func() error { return e.SynchronizeContext(ctx) }))
		}
		testgpu.Parked(t, b.Driver, 80)
		now := b.Driver.WaitStats()
		require.Equal(t, 1, now.Watchers)
		require.Equal(t, quiet.Parked+80, now.Parked)
		require.Equal(t, quiet.Woken, now.Woken)
		require.Equal(t, quiet.Cancelled, now.Cancelled)
		testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Wakeups > now.Wakeups+10 })
		require.Greater(t, b.Driver.WaitStats().Queries, now.Queries)

		cancel()
		for _, done := range given {
			require.Error(t, testgpu.Receive(t, done))
		}
		now = b.Driver.WaitStats()
		require.Equal(t, 60, now.Waiting)
		require.Equal(t, quiet.Cancelled+20, now.Cancelled)
		require.Equal(t, quiet.Woken, now.Woken)
		require.Error(t, e.SynchronizeContext(ctx), "not parked at all")
		require.Equal(t, quiet.Cancelled+20, b.Driver.WaitStats().Cancelled)

		release()
		for _, done := range going {
			require.NoError(t, testgpu.Receive(t, done))
		}
		testgpu.NoWaits(t, b.Driver)
		now = b.Driver.WaitStats()
		require.Equal(t, quiet.Parked+80, now.Parked)
		require.Equal(t, quiet.Woken+60, now.Woken)
		require.LessOrEqual(t, now.Queries, uint64(c.Count("EventQuery")+c.Count("StreamQuery")), "each is a call")
		require.Greater(t, now.Queries, uint64(c.Count("EventQuery"))/2)
		made := c.During(func() { time.Sleep(testgpu.Soon) })
		require.Empty(t, made, "nobody waits, and nothing is asked")
		require.Equal(t, now, b.Driver.WaitStats())
		require.Empty(t, c.During(func() { b.Driver.WaitStats() }))
	})
}

// Nothing is asked any more once the last wait is over, however it ends.
func TestPollersEnd(t *testing.T) {
	for name, end := range map[string]func(cancel, release func(), e *cuda.Event) error{
		"cancelled": func(cancel, _ func(), _ *cuda.Event) error { cancel(); return nil },
		"done":      func(_, release func(), _ *cuda.Event) error { release(); return nil },
		"closed":    func(_, _ func(), e *cuda.Event) error { return e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
			before := runtime.NumGoroutine()
			for range 50 {
				s, err := b.Device().NewStream(nil)
				require.NoError(t, err)
				release := gpu.Hold(s)
				e, err := s.RecordEvent(nil)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				wait := testgpu.Go(func() error { return e.SynchronizeContext(ctx) })
				if name != "cancelled" {
					e.Done() // and nobody receives
				}
				testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Waiting > 0 && b.Driver.WaitStats().Watchers == 1 })
				require.NoError(t, end(cancel, release, e))
				testgpu.Receive(t, wait)
				testgpu.NoWaits(t, b.Driver)
				asked := b.Driver.WaitStats().Queries
				time.Sleep(time.Millisecond)
				require.Equal(t, asked, b.Driver.WaitStats().Queries)
				cancel()
				release()
				require.NoError(t, e.Close())
				require.NoError(t, s.Close())
			}
			testgpu.WaitUntil(t, func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// Long waits cost little: a poller looks a thousand times a second at most, and
// does not ask for each wait.
func TestLongWaitsAreCheap(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	release := gpu.Hold(s)
	defer release()
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(s))
	for range 1000 {
		e.Done()
	}
	time.Sleep(200 * time.Millisecond)
	before, began := b.Driver.WaitStats(), time.Now()
	time.Sleep(200 * time.Millisecond)
	after, took := b.Driver.WaitStats(), time.Since(began)
	looks := uint64(took/(100*time.Microsecond)) + 10
	require.LessOrEqual(t, after.Wakeups-before.Wakeups, looks)
	require.LessOrEqual(t, after.Queries-before.Queries, looks)
	require.NotEqual(t, before.Wakeups, after.Wakeups)
	require.NoError(t, e.Close())
	testgpu.NoWaits(t, b.Driver)
}

// The events by which the library learns when a stream or a device is done are made
// once and recorded again, also after waits that were given up.
func TestWaitsMakeFewEvents(t *testing.T) {
	testgpu.Rule(t, "06 waits use their events again", 1, func(t *testing.T, b *testgpu.Backend) {
		b, c := testgpu.Counted(t, b, nil)
		s := testgpu.NewStream(t, b.Device(), nil)
		const atOnce = 6
		for range 20 {
			release := testgpu.Hold(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			given := testgpu.Go(func() error { return cuda.WaitAll(ctx, s, b.Device()) })
			all := []<-chan error{s.Done(), b.Device().Done(), testgpu.Go(s.Synchronize), testgpu.Go(b.Device().Synchronize)}
			testgpu.Parked(t, b.Driver, atOnce)
			cancel()
			require.ErrorIs(t, testgpu.Receive(t, given), context.Canceled)
			release()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
		}
		require.LessOrEqual(t, c.Count("EventCreate"), atOnce)
		require.Zero(t, b.Driver.Stats().Events)
	})
}
