package stress_test

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

// memoryTurns are tests of what uses of memory, and its Close, find when others overtake them.
var memoryTurns = map[string]func(x *turn){
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
}
