package rules_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestWaitsKeepToTheirRecord(t *testing.T) {
	for _, same := range []bool{true, false} {
		name := map[bool]string{true: "the same stream", false: "another stream"}[same]
		testgpu.Rule(t, "17 a wait keeps to its record when the event is recorded again on "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			s := testgpu.NewStream(t, b.Device(), nil)
			next := testgpu.NewStream(t, b.Device(), nil)
			if same {
				next = s
			}
			start, e := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
			require.NoError(t, start.Record(s))
			require.NoError(t, start.Synchronize())
			first := testgpu.Hold(t, s)
			require.NoError(t, e.Record(s))
			former := testgpu.Waits(t, e)
			testgpu.Parked(t, b.Driver, len(testgpu.WaitWays))
			second := testgpu.Hold(t, next)
			require.NoError(t, e.Record(next))
			newest := testgpu.Waits(t, e)
			testgpu.Parked(t, b.Driver, 2*len(testgpu.WaitWays))
			require.Equal(t, 2, b.Driver.Stats().Events)
			first()
			for _, done := range former {
				require.NoError(t, testgpu.Receive(t, done))
			}
			require.Equal(t, len(testgpu.WaitWays), b.Driver.WaitStats().Waiting)
			require.False(t, testgpu.Query(t, e))
			_, err := start.ElapsedTime(e)
			require.ErrorIs(t, err, cuda.ErrNotCompleted)
			testgpu.NotReady(t, newest...)
			second()
			for _, done := range newest {
				require.NoError(t, testgpu.Receive(t, done))
			}
			require.True(t, testgpu.Query(t, e))
			took, err := start.ElapsedTime(e)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, testgpu.Soon-time.Millisecond, "of the newest record")
			testgpu.NoWaits(t, b.Driver)
		})
	}

	testgpu.Rule(t, "24 closing an event ends the waits for all its records", 1, func(t *testing.T, b *testgpu.Backend) {
		s, e := testgpu.NewStream(t, b.Device(), nil), cuda.NewEvent(nil)
		release := testgpu.Hold(t, s)
		var all []<-chan error
		for range 5 {
			require.NoError(t, e.Record(s))
			all = append(all, testgpu.Waits(t, e)...)
			testgpu.Parked(t, b.Driver, len(all))
		}
		require.Equal(t, 1, b.Driver.Stats().Events)
		require.NoError(t, e.Close())
		for _, done := range all {
			require.ErrorIs(t, testgpu.Receive(t, done), cuda.ErrClosed)
		}
		testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Events == 0 })
		release()
	})
}

// Whoever waits for an event that is recorded all the time neither waits for ever
// nor gets ErrClosed, and nothing is left of the former records.
func TestRecordedAllTheTime(t *testing.T) {
	testgpu.Rule(t, "17 waits for an event that is recorded in a loop", 1, func(t *testing.T, b *testgpu.Backend) {
		const waiters, times = 100, 20
		s, e := testgpu.NewStream(t, b.Device(), nil), testgpu.NewEvent(t, nil)
		buf := testgpu.Alloc[uint8](t, b.Device(), 1<<20)
		require.NoError(t, e.Record(s))
		var stop atomic.Bool
		var recording, waiting sync.WaitGroup
		recording.Go(func() {
			for !stop.Load() {
				if err := errors.Join(cuda.Fill(s, buf, 1), e.Record(s)); err != nil {
					t.Error(err)
					return
				}
				if q, err := s.Query(); err == nil && !q {
					time.Sleep(10 * time.Microsecond) // so that the queue stays short
				}
			}
		})
		for i := range waiters {
			waiting.Go(func() {
				for range times {
					wait := e.Synchronize
					if i%4 == 0 {
						wait = func() error { return <-e.Done() }
					}
					if err := wait(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		testgpu.Returns(t, waiting.Wait)
		stop.Store(true)
		recording.Wait()
		testgpu.NoWaits(t, b.Driver)
		testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Events == 1 })
		require.NoError(t, s.Synchronize())
	})
}

// shared are events that others can record too.
var shared = map[string]func(t testing.TB) (e *cuda.Event, share func()){
	"interprocess": func(t testing.TB) (*cuda.Event, func()) {
		return testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true}), func() {}
	},
	"external": func(t testing.TB) (*cuda.Event, func()) {
		return testgpu.NewEvent(t, testgpu.External()), func() {}
	},
	"handle taken": func(t testing.TB) (*cuda.Event, func()) {
		e := testgpu.NewEvent(t, nil)
		return e, func() { e.Handle() }
	},
}

func TestSharedEventsMoveAlong(t *testing.T) {
	for name, make := range shared {
		testgpu.Rule(t, "17 waits for a shared event move along: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			s, before := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			e, share := make(t)
			first := testgpu.Hold(t, s)
			require.NoError(t, e.Record(s))
			share()
			handle := testgpu.NativeEvent(t, e)
			all := testgpu.Waits(t, e)
			testgpu.Parked(t, b.Driver, len(testgpu.WaitWays))
			second := testgpu.Hold(t, before)
			require.NoError(t, e.Record(before))
			require.Equal(t, handle, testgpu.NativeEvent(t, e), "others know it by that")
			require.Equal(t, 1, b.Driver.Stats().Events)
			first()
			testgpu.NotReady(t, all...)
			second()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
		})
	}

	testgpu.Rule(t, "17 a handle that is taken during a wait", 1, func(t *testing.T, b *testgpu.Backend) {
		var q queryCounter
		b = testgpu.Modified(t, b, q.install)
		s := testgpu.NewStream(t, b.Device(), nil)
		first := testgpu.Hold(t, s)
		early, e := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		require.NoError(t, early.Record(s))
		require.NoError(t, e.Record(s))
		earlyDone, all := early.Done(), testgpu.Waits(t, e)
		testgpu.Parked(t, b.Driver, 1+len(testgpu.WaitWays))
		q.requireOnly(t, testgpu.NativeEvent(t, early))
		handle := e.Handle()
		testgpu.WaitUntil(t, func() bool { return q.about(handle) > 20 }) // by itself, since others may record it
		other := testgpu.NewStream(t, b.Device(), nil)
		require.Equal(t, driver.Success, b.Driver.API().EventRecord(handle, other.Handle())) // which is idle
		for _, done := range all {
			require.NoError(t, testgpu.Receive(t, done))
		}
		testgpu.NotReady(t, earlyDone)
		first()
		require.NoError(t, testgpu.Receive(t, earlyDone))
	})
}

// An answer about a former record says nothing to a wait that began after the event
// was recorded again.
func TestLateAnswerAboutASharedEvent(t *testing.T) {
	for name, make := range shared {
		testgpu.Rule(t, "17 a wait for a shared event is for no earlier record: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			var v testgpu.Valve
			b = testgpu.Modified(t, b, v.Install)
			s := testgpu.NewStream(t, b.Device(), nil)
			e, share := make(t)
			first := testgpu.Hold(t, s)
			require.NoError(t, e.Record(s))
			share()
			early := e.Done()
			testgpu.Parked(t, b.Driver, 1)
			open := v.Close(t, driver.Success, testgpu.AnyEvent)
			first()
			testgpu.WaitUntil(t, func() bool { return v.Stopped.Load() == 1 }) // the driver has said that it is done
			second := testgpu.Hold(t, s)
			require.NoError(t, e.Record(s))
			late := testgpu.Waits(t, e)
			testgpu.Parked(t, b.Driver, 1+len(testgpu.WaitWays))
			open()
			testgpu.NotReady(t, late...)
			second()
			require.NoError(t, testgpu.Receive(t, early))
			for _, done := range late {
				require.NoError(t, testgpu.Receive(t, done))
			}
		})
	}
}

// Two goroutines that record an event at once, while others wait for it, leave all
// waits with a record that ends.
func TestRecordedByTwoAtOnce(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	e := testgpu.NewEvent(t, nil)
	streams := []*cuda.Stream{testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)}
	var all, recording sync.WaitGroup
	for _, s := range streams {
		recording.Go(func() {
			for range 300 {
				gpu.Run(s, 20*time.Microsecond)
				if err := e.Record(s); err != nil {
					t.Error(err)
				}
				all.Go(func() {
					if err := e.Synchronize(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	testgpu.Returns(t, recording.Wait)
	testgpu.Returns(t, all.Wait)
	testgpu.NoWaits(t, b.Driver)
	testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Events == 1 })
}
