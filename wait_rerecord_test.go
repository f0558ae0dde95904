package cuda_test

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
)

func TestWaitsKeepToTheirRecord(t *testing.T) {
	for _, same := range []bool{true, false} {
		name := map[bool]string{true: "the same stream", false: "another stream"}[same]
		rule(t, "17 a wait keeps to its record when the event is recorded again on "+name, 1, func(t *testing.T, b *backend) {
			s := newStream(t, b.dev(), nil)
			next := newStream(t, b.dev(), nil)
			if same {
				next = s
			}
			start, e := newEvent(t, timed()), newEvent(t, timed())
			require.NoError(t, start.Record(s))
			require.NoError(t, start.Synchronize())
			first := block(t, s)
			require.NoError(t, e.Record(s))
			former := waits(t, e)
			parked(t, b.drv, len(ways))
			second := block(t, next)
			require.NoError(t, e.Record(next))
			newest := waits(t, e)
			parked(t, b.drv, 2*len(ways))
			require.Equal(t, 2, b.drv.Stats().Events)
			first()
			for _, done := range former {
				require.NoError(t, told(t, done))
			}
			require.Equal(t, len(ways), b.drv.WaitStats().Waiting)
			require.False(t, query(t, e))
			_, err := start.ElapsedTime(e)
			require.ErrorIs(t, err, cuda.ErrNotCompleted)
			notTold(t, newest...)
			second()
			for _, done := range newest {
				require.NoError(t, told(t, done))
			}
			require.True(t, query(t, e))
			took, err := start.ElapsedTime(e)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, soon-time.Millisecond, "of the newest record")
			nobodyWaits(t, b.drv)
		})
	}

	rule(t, "24 closing an event ends the waits for all its records", 1, func(t *testing.T, b *backend) {
		s, e := newStream(t, b.dev(), nil), cuda.NewEvent(nil)
		release := block(t, s)
		var all []<-chan error
		for range 5 {
			require.NoError(t, e.Record(s))
			all = append(all, waits(t, e)...)
			parked(t, b.drv, len(all))
		}
		require.Equal(t, 1, b.drv.Stats().Events)
		require.NoError(t, e.Close())
		for _, done := range all {
			require.ErrorIs(t, told(t, done), cuda.ErrClosed)
		}
		becomes(t, func() bool { return b.drv.Stats().Events == 0 })
		release()
	})
}

// Whoever waits for an event that is recorded all the time is neither starved nor
// told that it is closed, and nothing is left of the former records.
func TestRecordedAllTheTime(t *testing.T) {
	rule(t, "17 waits for an event that is recorded in a loop", 1, func(t *testing.T, b *backend) {
		const waiters, times = 100, 20
		s, e := newStream(t, b.dev(), nil), newEvent(t, nil)
		buf := alloc[uint8](t, b.dev(), 1<<20)
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
		returns(t, waiting.Wait)
		stop.Store(true)
		recording.Wait()
		nobodyWaits(t, b.drv)
		becomes(t, func() bool { return b.drv.Stats().Events == 1 })
		require.NoError(t, s.Synchronize())
	})
}

// shared are events that others can record too.
var shared = map[string]func(t testing.TB) (e *cuda.Event, share func()){
	"interprocess": func(t testing.TB) (*cuda.Event, func()) {
		return newEvent(t, &cuda.EventOptions{Interprocess: true}), func() {}
	},
	"external": func(t testing.TB) (*cuda.Event, func()) {
		return newEvent(t, external()), func() {}
	},
	"handle taken": func(t testing.TB) (*cuda.Event, func()) {
		e := newEvent(t, nil)
		return e, func() { e.Handle() }
	},
}

func TestSharedEventsMoveAlong(t *testing.T) {
	for name, make := range shared {
		rule(t, "17 waits for a shared event move along: "+name, 1, func(t *testing.T, b *backend) {
			s, before := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
			e, share := make(t)
			first := block(t, s)
			require.NoError(t, e.Record(s))
			share()
			handle := native(t, e)
			all := waits(t, e)
			parked(t, b.drv, len(ways))
			second := block(t, before)
			require.NoError(t, e.Record(before))
			require.Equal(t, handle, native(t, e), "others know it by that")
			require.Equal(t, 1, b.drv.Stats().Events)
			first()
			notTold(t, all...)
			second()
			for _, done := range all {
				require.NoError(t, told(t, done))
			}
		})
	}

	rule(t, "17 a handle that is taken during a wait", 1, func(t *testing.T, b *backend) {
		var q questioned
		b = changed(t, b, q.fit)
		s := newStream(t, b.dev(), nil)
		first := block(t, s)
		early, e := newEvent(t, nil), newEvent(t, nil)
		require.NoError(t, early.Record(s))
		require.NoError(t, e.Record(s))
		earlyDone, all := early.Done(), waits(t, e)
		parked(t, b.drv, 1+len(ways))
		q.onlyAbout(t, native(t, early))
		handle := e.Handle()
		becomes(t, func() bool { return q.about(handle) > 20 }) // by itself, since others may record it
		other := newStream(t, b.dev(), nil)
		require.Equal(t, driver.Success, b.drv.API().EventRecord(handle, other.Handle())) // which is idle
		for _, done := range all {
			require.NoError(t, told(t, done))
		}
		notTold(t, earlyDone)
		first()
		require.NoError(t, told(t, earlyDone))
	})
}

// An answer about a former record says nothing to a wait that began after the event
// was recorded again.
func TestLateAnswerAboutASharedEvent(t *testing.T) {
	for name, make := range shared {
		rule(t, "17 a wait for a shared event is for no earlier record: "+name, 1, func(t *testing.T, b *backend) {
			var v valve
			b = changed(t, b, v.fit)
			s := newStream(t, b.dev(), nil)
			e, share := make(t)
			first := block(t, s)
			require.NoError(t, e.Record(s))
			share()
			early := e.Done()
			parked(t, b.drv, 1)
			open := v.close(t, driver.Success, anyEvent)
			first()
			becomes(t, func() bool { return v.stopped.Load() == 1 }) // the driver has said that it is done
			second := block(t, s)
			require.NoError(t, e.Record(s))
			late := waits(t, e)
			parked(t, b.drv, 1+len(ways))
			open()
			notTold(t, late...)
			second()
			require.NoError(t, told(t, early))
			for _, done := range late {
				require.NoError(t, told(t, done))
			}
		})
	}
}

// Two goroutines that record an event at once, while others wait for it, leave all
// waits with a record that ends.
func TestRecordedByTwoAtOnce(t *testing.T) {
	gpu, b := simulatedDevices(t, cudatest.Config{}, nil)
	e := newEvent(t, nil)
	streams := []*cuda.Stream{newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)}
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
	returns(t, recording.Wait)
	returns(t, all.Wait)
	nobodyWaits(t, b.drv)
	becomes(t, func() bool { return b.drv.Stats().Events == 1 })
}
