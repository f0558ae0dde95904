package stress_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

// turn is a test in which a call is held up at the driver's door and overtaken.
type turn struct {
	*held
	t *testing.T
}

// behind begins a call, does the rest while that is held up at a function of the driver, and
// then lets it go on.
func (x *turn) behind(function string, after bool, call func() error, meanwhile func()) {
	x.t.Helper()
	arrived, open := x.door(function, after)
	defer open()
	result := x.begun(call)
	testgpu.Receive(x.t, arrived)
	meanwhile()
	require.Empty(x.t, result)
	open()
	x.ended(result, nil)
}

func (x *turn) begun(f func() error) chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// ended wants a call to end like that.
func (x *turn) ended(result <-chan error, want error) {
	x.t.Helper()
	require.ErrorIs(x.t, testgpu.Receive(x.t, result), want)
}

func (x *turn) no(err error) {
	x.t.Helper()
	require.NoError(x.t, err)
}

func (x *turn) stream() *cuda.Stream { return x.held.stream(x.t) }

func (x *turn) event(opts *cuda.EventOptions) *cuda.Event { return testgpu.NewEvent(x.t, opts) }

// done asks whether e or s is done.
func (x *turn) done(q interface{ Query() (bool, error) }) bool { return testgpu.Query(x.t, q) }

// native is the handle of e in words: Handle would have the library treat it as others' too.
func native(e *cuda.Event) string {
	s := e.String()
	return s[strings.LastIndex(s, " "):]
}

// reuse records events on idle streams until one has the native event of that name, which
// must have been given back.
func (x *turn) reuse(name string) *cuda.Event {
	x.t.Helper()
	s := x.stream()
	for range 8 {
		e := x.event(nil)
		x.no(e.Record(s))
		if native(e) == name {
			return e
		}
	}
	x.t.Fatal("nobody gets the native event", name)
	return nil
}

// memory is a buffer of home that user may read.
func (x *turn) memory(home, user *cuda.Stream) *cuda.Buffer[uint32] {
	m, err := cuda.AllocAsync[uint32](home, 64)
	x.no(err)
	x.no(user.WaitStream(home))
	return m
}

// kept closes m, which is used still, and wants its bytes not to be given to others.
func (x *turn) kept(home *cuda.Stream, m *cuda.Buffer[uint32], why string) {
	x.t.Helper()
	at, buffers := m.Pointer(), x.Driver().Stats().Buffers
	x.no(m.Close())
	require.Equal(x.t, buffers, x.Driver().Stats().Buffers, why)
	n, err := cuda.AllocAsync[uint32](home, 64)
	x.no(err)
	require.NotEqual(x.t, at, n.Pointer(), why)
	x.no(n.Close())
}

// parked waits until so many waits are left to the poller.
func (x *turn) parked(n int) { testgpu.Parked(x.t, x.Driver(), n) }

// turns are tests of what each call finds out when it has been overtaken.
var turns = map[string]func(x *turn){
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
	"a copy that is not enqueued yet": func(x *turn) {
		x.notEnqueued("MemcpyAsync", func(user *cuda.Stream, m *cuda.Buffer[uint32]) error {
			return cuda.Copy(user, x.host(x.t, 64), m)
		})
	},
	"a fill that is not enqueued yet": func(x *turn) {
		x.notEnqueued("MemsetD32Async", func(user *cuda.Stream, m *cuda.Buffer[uint32]) error { return cuda.Fill(user, m, 1) })
	},
	"a launch that is not enqueued yet": func(x *turn) {
		check := x.kernel("purecuda_check")
		wrong := x.host(x.t, 1)
		x.notEnqueued("LaunchKernel", func(user *cuda.Stream, m *cuda.Buffer[uint32]) error {
			return check.Launch(user, cuda.Grid1D(64, 64), m, uint64(64), uint32(0), wrong)
		})
	},
	"a graph's launch that is not enqueued yet": func(x *turn) {
		s := x.stream()
		var exec *cuda.GraphExec
		x.notEnqueued("GraphLaunch", func(user *cuda.Stream, m *cuda.Buffer[uint32]) error {
			g, err := s.Capture(func() error { return cuda.Fill(s, m, 1) })
			x.no(err)
			exec, err = g.Instantiate()
			x.no(err)
			x.no(g.Close())
			err = exec.Launch(user)
			return errors.Join(err, exec.Close())
		})
	},
	"a use of a closed graph": func(x *turn) {
		home, user := x.stream(), x.stream()
		m := x.memory(home, user)
		at := m.Pointer()
		g, err := user.Capture(func() error { return cuda.Fill(user, m, 1) })
		x.no(err)
		exec, err := g.Instantiate()
		x.no(err)
		x.no(errors.Join(g.Close(), m.Close()))
		defer x.busy(x.t, user)()
		x.no(errors.Join(exec.Launch(user), exec.Close()))
		n, err := cuda.AllocAsync[uint32](home, 64)
		x.no(err)
		require.NotEqual(x.t, at, n.Pointer(), "the launch is not done")
		x.no(n.Close())
	},
	"a use that the home has joined": func(x *turn) {
		home, user, e := x.stream(), x.stream(), x.event(nil)
		m := x.memory(home, user)
		x.no(cuda.Fill(user, m, 1))
		x.no(errors.Join(e.Record(user), e.Wait(home)))
		defer x.busy(x.t, user)()
		x.no(m.Close())
		require.Zero(x.t, x.Driver().Stats().Buffers, "the home comes after the use")
	},
	"a use after the home has joined another": func(x *turn) {
		home, user, e := x.stream(), x.stream(), x.event(nil)
		m := x.memory(home, user)
		x.no(errors.Join(e.Record(user), e.Wait(home)))
		defer x.busy(x.t, user)()
		x.no(cuda.Fill(user, m, 1))
		x.kept(home, m, "the record was before the use")
	},
	"a join of a mark that is replaced meanwhile": func(x *turn) {
		home, user, other, e := x.stream(), x.stream(), x.stream(), x.event(nil)
		m := x.memory(home, user)
		defer x.busy(x.t, user)()
		x.no(cuda.Fill(user, m, 1))
		x.no(e.Record(user))
		name := native(e)
		x.behind("StreamWaitEvent", false, func() error { return e.Wait(home) }, func() {
			x.no(e.Record(other))
			x.reuse(name)
		})
		x.kept(home, m, "the home has not waited for the use")
	},
	"a join of an event that is recorded again meanwhile": func(x *turn) {
		home, user, e := x.stream(), x.stream(), x.event(nil)
		m := x.memory(home, user)
		x.no(e.Record(user))
		defer x.busy(x.t, user)()
		x.behind("StreamWaitEvent", true, func() error { return e.Wait(home) }, func() {
			x.no(cuda.Fill(user, m, 1))
			x.no(e.Record(user))
		})
		x.kept(home, m, "the home has waited for the first record")
	},
	"a join of an event that others get meanwhile": func(x *turn) {
		home, user, other, e := x.stream(), x.stream(), x.stream(), x.event(nil)
		m := x.memory(home, user)
		defer x.busy(x.t, user)()
		x.no(cuda.Fill(user, m, 1))
		x.no(e.Record(user))
		x.behind("StreamWaitEvent", false, func() error { return e.Wait(home) }, func() {
			handle := e.Handle()
			require.Equal(x.t, driver.Success, x.Driver().API().EventRecord(handle, other.Handle()))
		})
		x.kept(home, m, "the home has waited for what others recorded")
	},
	"a record that a use overtakes on its way back": func(x *turn) {
		home, user, e, other := x.stream(), x.stream(), x.event(nil), x.event(nil)
		m := x.memory(home, user)
		x.no(e.Record(user))
		release := func() {}
		defer func() { release() }()
		x.behind("EventRecord", true, func() error { return e.Record(user) }, func() {
			release = x.busy(x.t, user)
			x.no(cuda.Fill(user, m, 1))
			x.no(other.Record(user))
		})
		x.no(e.Wait(home))
		x.kept(home, m, "the record was before the use")
	},
	"a wait for a stream that a use overtakes": func(x *turn) {
		home, user := x.stream(), x.stream()
		m := x.memory(home, user)
		x.no(home.WaitStream(user))
		release := func() {}
		defer func() { release() }()
		x.behind("StreamWaitEvent", true, func() error { return home.WaitStream(user) }, func() {
			release = x.busy(x.t, user)
			x.no(cuda.Fill(user, m, 1))
		})
		x.kept(home, m, "the home has waited for less")
	},
	"a closed stream that memory depends on": func(x *turn) {
		home, user := x.stream(), x.stream()
		m := x.memory(home, user)
		short, err := x.NewStream(nil)
		x.no(err)
		x.no(short.WaitStream(user))
		x.no(x.run(short, time.Microsecond))
		x.no(cuda.Fill(short, m, 1))
		x.no(short.Close())
		require.Equal(x.t, 3, x.Driver().Stats().Streams)
		x.no(m.Close())
		testgpu.WaitUntil(x.t, func() bool { return x.Driver().Stats().Streams == 2 })
	},
	"a closed stream whose use is not done": func(x *turn) {
		home, third := x.stream(), x.stream()
		short, err := x.NewStream(nil)
		x.no(err)
		m := x.memory(home, short)
		x.no(third.WaitStream(home))
		defer x.busy(x.t, short)()
		x.no(errors.Join(cuda.Fill(short, m, 1), short.Close()))
		x.no(cuda.Fill(third, m, 1)) // which drops the users that are closed and done
		x.no(third.Synchronize())
		x.kept(home, m, "the closed stream is not done")
	},
	"a home that is closed before its memory": func(x *turn) {
		home, err := x.NewStream(nil)
		x.no(err)
		m, err := cuda.AllocAsync[uint32](home, 64)
		x.no(err)
		x.no(home.Close())
		require.Equal(x.t, 1, x.Driver().Stats().Streams)
		x.no(m.Close())
		require.Equal(x.t, 0, x.Driver().Stats().Streams)
	},
	"a question about an event that comes into a capture": func(x *turn) {
		s := x.stream()
		e, c := cuda.NewEvent(nil), cuda.NewEvent(nil)
		x.no(e.Record(s))
		arrived, open := x.door("EventQuery", false)
		defer open()
		asked := x.begun(func() error { _, err := e.Query(); return err })
		testgpu.Receive(x.t, arrived)
		x.no(e.Close())
		g, err := s.Capture(func() error {
			err := c.Record(s)
			open()
			x.no(except(testgpu.Receive(x.t, asked), nil, cuda.ErrClosed))
			return err
		})
		x.no(err)
		x.no(errors.Join(g.Close(), c.Close()))
	},
	"a question beside another library's capture": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		defer x.busy(x.t, s)()
		x.no(e.Record(s))
		foreign, api := x.stream(), x.Driver().API()
		handle := foreign.Handle()
		runtime.LockOSThread() // which the strictest mode is about
		defer runtime.UnlockOSThread()
		require.Equal(x.t, driver.Success, api.StreamBeginCapture(handle, driver.CaptureModeGlobal))
		x.done(e)
		x.done(s)
		g, r := api.StreamEndCapture(handle)
		require.Equal(x.t, driver.Success, r, "the question has ended it")
		require.Equal(x.t, driver.Success, api.GraphDestroy(g))
	},
	"calls on a captured stream take turns": func(x *turn) {
		s, o := x.stream(), x.stream()
		g, err := o.Capture(func() error {
			x.no(s.WaitStream(o))
			var others []chan error
			x.behind("LaunchKernel", false, func() error { return x.run(s, time.Microsecond) }, func() {
				for _, stream := range []*cuda.Stream{s, o} {
					others = append(others, x.begun(func() error { return x.run(stream, time.Microsecond) }))
					time.Sleep(3 * time.Millisecond)
					require.Empty(x.t, others[len(others)-1])
				}
			})
			for _, other := range others {
				x.ended(other, nil)
			}
			return o.WaitStream(s)
		})
		x.no(err)
		x.no(g.Close())
	},
	"a call that waits for the end of a capture": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		var record chan error
		x.behind("StreamEndCapture", false, func() error {
			g, err := s.Capture(func() error { return nil })
			return errors.Join(err, g.Close())
		}, func() {
			record = x.begun(func() error { return e.Record(s) })
			time.Sleep(3 * time.Millisecond)
			require.Empty(x.t, record)
		})
		x.ended(record, nil)
		x.no(e.Synchronize()) // it is no part of the capture
	},
	"all goes on when a capture has ended": func(x *turn) {
		s, o, e := x.stream(), x.stream(), x.event(nil)
		x.ended(x.begun(func() error {
			g, err := s.Capture(func() error {
				return errors.Join(e.Record(s), e.Wait(o), s.WaitStream(o))
			})
			return errors.Join(err, g.Close())
		}), nil)
		for _, stream := range []*cuda.Stream{s, o} {
			x.ended(x.begun(func() error {
				return errors.Join(x.run(stream, time.Microsecond), e.Record(stream), e.Synchronize(), stream.Synchronize())
			}), nil)
		}
	},
	"the default stream beside a capture of a blocking one": func(x *turn) {
		s, err := x.NewStream(&cuda.StreamOptions{SyncWithDefault: true})
		x.no(err)
		x.no(x.run(x.DefaultStream(), time.Microsecond))
		g, err := s.Capture(func() error {
			require.ErrorIs(x.t, x.run(x.DefaultStream(), time.Microsecond), cuda.ErrCapturing)
			return x.run(s, time.Microsecond)
		})
		x.no(err)
		x.no(g.Close())
		x.no(x.run(x.DefaultStream(), time.Microsecond))
		x.no(s.Close())
	},
	"a stream that is closed while it is captured": func(x *turn) {
		s, err := x.NewStream(nil)
		x.no(err)
		g, err := s.Capture(func() error { return errors.Join(x.run(s, time.Microsecond), s.Close()) })
		x.no(err)
		n, err := g.Nodes()
		x.no(err)
		require.Equal(x.t, 1, n)
		x.no(g.Close())
		require.Zero(x.t, x.Driver().Stats().Streams)
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
	"a call on the default stream when a capture of a blocking one begins": func(x *turn) {
		s, err := x.NewStream(&cuda.StreamOptions{SyncWithDefault: true})
		x.no(err)
		var capture chan error
		x.behind("LaunchKernel", false, func() error { return x.run(x.DefaultStream(), time.Microsecond) }, func() {
			capture = x.begun(func() error {
				g, err := s.Capture(func() error { return x.run(s, time.Microsecond) })
				return errors.Join(err, g.Close())
			})
			time.Sleep(3 * time.Millisecond)
			require.Empty(x.t, capture, "the default stream's work would end it")
		})
		x.ended(capture, nil)
		x.no(s.Close())
	},
	"a module that a graph needs": func(x *turn) {
		s := x.stream()
		m, err := x.LoadModule([]byte(kernels.PTX))
		x.no(err)
		spin, err := m.Kernel("purecuda_spin")
		x.no(err)
		modules := x.Driver().Stats().Modules
		g, err := s.Capture(func() error { return spin.Launch(s, cuda.Grid1D(1, 1), uint64(10)) })
		x.no(errors.Join(err, m.Close()))
		exec, err := g.Instantiate()
		x.no(errors.Join(err, g.Close()))
		require.Equal(x.t, modules, x.Driver().Stats().Modules)
		x.no(errors.Join(exec.Launch(s), s.Synchronize(), exec.Close()))
		require.Equal(x.t, modules-1, x.Driver().Stats().Modules)
	},
	"copies of different lengths": func(x *turn) {
		s := x.stream()
		for _, n := range [...][2]int{{1, 2}, {2, 1}} {
			require.ErrorIs(x.t, cuda.Copy(s, x.host(x.t, n[0]), x.host(x.t, n[1])), cuda.ErrInvalid)
		}
	},
	"memory that is closed while its home is captured": func(x *turn) {
		s := x.stream()
		m, err := cuda.AllocAsync[uint32](s, 64)
		x.no(err)
		g, err := s.Capture(func() error { return m.Close() })
		x.no(err)
		n, err := g.Nodes()
		x.no(err)
		require.Zero(x.t, n, "the free is no part of the graph")
		x.no(g.Close())
		testgpu.WaitUntil(x.t, func() bool { return x.Driver().Stats().Buffers == 0 })
	},
}

// notEnqueued wants a use of memory that is held up before its driver call not to be covered
// by a wait that comes meanwhile.
func (x *turn) notEnqueued(function string, use func(user *cuda.Stream, m *cuda.Buffer[uint32]) error) {
	home, user, e := x.stream(), x.stream(), x.event(nil)
	m := x.memory(home, user)
	release := func() {}
	defer func() { release() }()
	x.behind(function, false, func() error { return use(user, m) }, func() {
		x.no(errors.Join(e.Record(user), e.Wait(home)))
		release = x.busy(x.t, user)
	})
	x.kept(home, m, "the use is not done")
}

func (x *turn) kernel(name string) *cuda.Kernel {
	return testgpu.Kernel(x.t, x.module, name)
}

func TestHeldTurns(t *testing.T) {
	for name, f := range turns {
		t.Run(name, func(t *testing.T) {
			onHeld(t, func(t *testing.T, b *held) { f(&turn{held: b, t: t}) })
		})
	}
}
