package stress_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// eventTurns are tests of what calls on events, and waits for them, find when others overtake them.
var eventTurns = map[string]func(x *turn){
	"a record of a mark that is replaced meanwhile": func(x *turn) {
		s, o, e := x.stream(), x.stream(), x.event(nil)
		first := x.busy(x.t, s)
		x.no(e.Record(s))
		var second func()
		var waits <-chan error
		x.behind("EventRecord", false, func() error { return e.Record(s) }, func() {
			waits = e.Done()
			x.no(e.Record(s))
			second = x.busy(x.t, s)
		})
		first()
		x.no(e.Wait(o))
		time.Sleep(time.Millisecond)
		require.False(x.t, x.done(e), "the record behind the second work is lost")
		require.False(x.t, x.done(o), "the record behind the second work is lost")
		second()
		x.ended(waits, nil) // it may be for either record
		x.no(e.Synchronize())
	},
	"a record while a mark is being replaced": func(x *turn) {
		s, elsewhere, e := x.stream(), x.stream(), x.event(nil)
		x.no(e.Record(s))
		x.no(e.Synchronize())
		// The replacing one is of the same stream, and begins while somebody waits.
		first := x.busy(x.t, s)
		x.no(e.Record(s))
		ctx, cancel := context.WithCancel(x.t.Context())
		waits := x.begun(func() error { return e.SynchronizeContext(ctx) })
		x.parked(1)
		var second func()
		x.behind("EventRecord", true, func() error { return e.Record(s) }, func() {
			cancel()
			x.ended(waits, context.Canceled)
			second = x.busy(x.t, s)
			x.no(e.Record(s))
		})
		first()
		x.no(e.Wait(elsewhere))
		time.Sleep(time.Millisecond)
		require.False(x.t, x.done(elsewhere), "the record behind the second work is lost")
		require.False(x.t, x.done(e), "the record behind the second work is lost")
		second()
		x.no(e.Synchronize())
	},
	"a record that a close overtakes": func(x *turn) {
		s, other := x.stream(), x.stream()
		e := cuda.NewEvent(nil)
		x.no(e.Record(s))
		name := native(e)
		release := x.busy(x.t, other)
		var others [4]*cuda.Event
		arrived, open := x.door("EventRecord", false)
		result := x.begun(func() error { return e.Record(s) })
		testgpu.Receive(x.t, arrived)
		x.no(e.Close())
		for i := range others {
			others[i] = x.event(nil)
			x.no(others[i].Record(other))
		}
		open()
		x.no(except(testgpu.Receive(x.t, result), nil, cuda.ErrClosed))
		x.no(s.Synchronize())
		for _, o := range others {
			require.False(x.t, x.done(o), "it was recorded by another")
		}
		release()
		x.no(other.Synchronize())
		x.reuse(name)
	},
	"a new mark that a close overtakes": func(x *turn) {
		s, other := x.stream(), x.stream()
		e := cuda.NewEvent(nil)
		x.no(e.Record(s))
		x.behind("EventRecord", true, func() error { return except(e.Record(other), cuda.ErrClosed) }, func() { x.no(e.Close()) })
		_, err := e.Query()
		require.ErrorIs(x.t, err, cuda.ErrClosed)
		require.Zero(x.t, x.Driver().Stats().Events)
	},
	"a wait for a mark that is replaced meanwhile": func(x *turn) {
		s, o, other, e := x.stream(), x.stream(), x.stream(), x.event(nil)
		defer x.busy(x.t, s)()
		defer x.busy(x.t, other)()
		x.no(e.Record(s))
		name := native(e)
		x.behind("StreamWaitEvent", false, func() error { return e.Wait(o) }, func() {
			x.no(e.Record(other))
			x.reuse(name)
		})
		require.False(x.t, x.done(o), "it has waited for somebody else's")
	},
	"a wait for an event that is closed meanwhile": func(x *turn) {
		s, o := x.stream(), x.stream()
		e := cuda.NewEvent(nil)
		x.no(e.Record(s))
		x.behind("StreamWaitEvent", false, func() error {
			if err := e.Wait(o); !errors.Is(err, cuda.ErrClosed) {
				return errors.Join(errors.New("wants ErrClosed"), err)
			}
			return nil
		}, func() { x.no(e.Close()) })
	},
	"a query of a mark that is replaced meanwhile": func(x *turn) {
		s, other, e := x.stream(), x.stream(), x.event(nil)
		defer x.busy(x.t, s)()
		defer x.busy(x.t, other)()
		x.no(e.Record(s))
		name := native(e)
		x.behind("EventQuery", false, func() error {
			done, err := e.Query()
			if done {
				return errors.New("it has asked for somebody else's")
			}
			return err
		}, func() {
			x.no(e.Record(other))
			x.reuse(name)
		})
	},
	"elapsed time of a mark that is replaced meanwhile": func(x *turn) {
		s := x.stream()
		timed := &cuda.EventOptions{Timing: true}
		e, end := x.event(timed), x.event(timed)
		x.no(errors.Join(e.Record(s), end.Record(s), s.Synchronize()))
		x.behind("EventElapsedTime", false, func() error {
			d, err := e.ElapsedTime(end)
			if d > 0 {
				return errors.New("the time of a record that is the event's no more")
			}
			return err
		}, func() {
			other := x.stream()
			x.no(errors.Join(x.run(other, 10*time.Microsecond), e.Record(other), other.Synchronize()))
		})
	},
	"a wait on the host keeps the native event": func(x *turn) {
		s, other, e := x.stream(), x.stream(), x.event(nil)
		release := x.busy(x.t, s)
		x.no(e.Record(s))
		name := native(e)
		waits := x.begun(e.Synchronize)
		x.parked(1)
		x.no(e.Record(other))
		x.no(other.Synchronize())
		for range 8 {
			o := x.event(nil)
			x.no(o.Record(other))
			require.NotEqual(x.t, name, native(o), "somebody waits for it")
		}
		time.Sleep(3 * time.Millisecond)
		require.Empty(x.t, waits)
		release()
		x.ended(waits, nil)
	},
	"the last wait gives the native event back": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		release := x.busy(x.t, s)
		x.no(e.Record(s))
		name := native(e)
		waits := x.begun(e.Synchronize)
		x.parked(1)
		x.no(e.Record(s))
		release()
		x.ended(waits, nil)
		x.no(s.Synchronize())
		x.reuse(name)
	},
	"a wait on the host keeps to its record": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		first := x.busy(x.t, s)
		x.no(e.Record(s))
		waits := x.begun(e.Synchronize)
		x.parked(1)
		second := x.busy(x.t, s)
		x.no(e.Record(s))
		first()
		x.ended(waits, nil)
		require.False(x.t, x.done(e))
		second()
	},
	"closing ends the waits": func(x *turn) {
		s := x.stream()
		e := cuda.NewEvent(nil)
		release := x.busy(x.t, s)
		x.no(e.Record(s))
		done, waits := e.Done(), x.begun(e.Synchronize)
		x.parked(2)
		x.no(e.Close())
		x.ended(done, cuda.ErrClosed)
		x.ended(waits, cuda.ErrClosed)
		release()
	},
	"closing a stream ends the waits": func(x *turn) {
		s, err := x.NewStream(nil)
		x.no(err)
		release := x.busy(x.t, s)
		done, waits := s.Done(), x.begun(s.Synchronize)
		x.parked(2)
		x.no(s.Close())
		x.ended(done, cuda.ErrClosed)
		x.ended(waits, cuda.ErrClosed)
		release()
	},
	"the driver's own waits": func(x *turn) {
		s := x.stream()
		var waits atomic.Int64
		count := func(function string, after bool) {
			if function == "EventSynchronize" && after {
				waits.Add(1)
			}
		}
		x.hold.Store(&count)
		expect := func(n int64, why string) {
			x.t.Helper()
			require.EqualValues(x.t, n, waits.Swap(0), why)
		}
		x.no(errors.Join(cuda.Copy(s, x.host(x.t, 1), x.host(x.t, 1)), s.Synchronize()))
		expect(0, "nothing is to be noted")
		x.no(errors.Join(x.run(s, time.Microsecond), s.Synchronize()))
		expect(1, "a kernel may have printed")
		x.no(s.Synchronize())
		expect(0, "it has been noted")
		m, err := cuda.AllocAsync[uint32](s, 64)
		x.no(errors.Join(err, s.Synchronize()))
		expect(0, "nothing was freed")
		x.no(errors.Join(m.Close(), s.Synchronize()))
		expect(1, "memory was freed")
		release := x.busy(x.t, s)
		x.no(x.run(s, time.Microsecond))
		ctx, cancel := context.WithTimeout(x.t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(x.t, s.SynchronizeContext(ctx), context.DeadlineExceeded)
		expect(0, "it was given up")
		release()
		x.no(s.Synchronize())
		expect(1, "the former wait has left it")
		x.no(errors.Join(x.run(s, time.Microsecond), <-s.Done(), s.Synchronize()))
		expect(1, "a channel has left it")
	},
}
