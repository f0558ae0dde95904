package cudatest

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestGraphMisuse(t *testing.T) {
	b := newBed(t, Config{})
	s, e := b.stream(0, driver.StreamNonBlocking), b.event(0, 0)
	var g driver.Graph
	x := b.exec(s, func() { b.ok(b.EventRecordWithFlags(e, s, driver.EventRecordExternal)) })
	g = b.graph(s, func() {})
	b.on(0, func() {
		_, r := b.GraphInstantiateWithFlags(g, 1<<60)
		require.Equal(t, driver.ErrorInvalidValue, r, "unknown flags")
	})
	require.Empty(t, b.gpu.main.misuses.list())

	b.ok(b.EventDestroy(e))
	require.Equal(t, driver.ErrorInvalidHandle, b.GraphLaunch(x, s))
	require.Contains(t, b.gpu.main.misuses.list()[0], "of a node was destroyed")

	leaks := b.gpu.Problems()
	require.Regexp(t, `leaked: graph 0x[0-9a-f]+, made at graph_test.go`, leaks[1])
	require.Regexp(t, `leaked: executable graph 0x[0-9a-f]+ of device 0, made at graph_test.go`, leaks[2])
	b.ok(b.GraphDestroy(g))
	b.ok(b.GraphExecDestroy(x))

	before := len(b.gpu.Problems())
	_, nodes := b.GraphGetNodes(g, nil)
	_, _, update := b.GraphExecUpdate(x, g)
	calls := []driver.Result{nodes, update, b.GraphDestroy(g), b.GraphLaunch(x, s), b.GraphUpload(x, s), b.GraphExecDestroy(x)}
	b.on(0, func() {
		_, r := b.GraphInstantiateWithFlags(g, 0)
		calls = append(calls, r)
	})
	for i, r := range calls {
		require.Equal(t, driver.ErrorInvalidValue, r, i)
	}
	problems := b.gpu.Problems()
	require.Len(t, problems, before+len(calls))
	require.Regexp(t, `misuse: GraphExecDestroy: executable graph 0x[0-9a-f]+ was destroyed`, problems[before+len(calls)-2])
}

func TestGraphsOutliveTheirContext(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	x := b.exec(s, func() { b.gpu.Run(Handle(s), ms) })
	b.ok(b.StreamDestroy(s))
	b.ok(b.DevicePrimaryCtxRelease(0))
	require.Equal(t, driver.ErrorContextIsDestroyed, b.GraphLaunch(x, 0))
	require.Equal(t, driver.ErrorContextIsDestroyed, b.GraphExecDestroy(x))
	require.Empty(t, b.gpu.Problems())
}

func TestUpdateResults(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	s, other, far := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
	p, e := b.mem(0, 8), b.event(0, 0)
	set := func() { b.ok(b.MemsetD8Async(p, 1, 4, s)) }
	chain := func() { set(); set(); set() }
	for name, test := range map[string]struct {
		old, new func()
		want     driver.GraphExecUpdateResult
	}{
		"the same":  {chain, chain, driver.GraphExecUpdateSuccess},
		"nothing":   {func() {}, func() {}, driver.GraphExecUpdateSuccess},
		"one more":  {set, chain, driver.GraphExecUpdateNotSupported},
		"one fewer": {chain, set, driver.GraphExecUpdateNotSupported},
		"another order": {chain, func() {
			set()
			b.then(s, other)
			b.ok(b.MemsetD8Async(p+4, 1, 4, other))
			set()
			b.then(other, s)
		}, driver.GraphExecUpdateTopologyChanged},
		"a copy":          {set, func() { b.ok(b.MemcpyDtoDAsync(p, p+4, 4, s)) }, driver.GraphExecUpdateNodeTypeChanged},
		"pretended work":  {set, func() { b.gpu.Run(Handle(s), ms) }, driver.GraphExecUpdateNodeTypeChanged},
		"another device":  {set, func() { b.ok(b.MemsetD8Async(b.mem(1, 4), 1, 4, far)) }, driver.GraphExecUpdateParametersChanged},
		"a fault":         {func() { b.gpu.Run(Handle(s), ms) }, func() { b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed) }, driver.GraphExecUpdateNodeTypeChanged},
		"an event record": {set, func() { b.ok(b.EventRecordWithFlags(e, s, driver.EventRecordExternal)) }, driver.GraphExecUpdateNodeTypeChanged},
		"wait and record": {
			func() { b.ok(b.StreamWaitEvent(s, e, driver.EventWaitExternal)) },
			func() { b.ok(b.EventRecordWithFlags(e, s, driver.EventRecordExternal)) },
			driver.GraphExecUpdateNodeTypeChanged,
		},
	} {
		x := b.exec(s, test.old)
		on := s
		if name == "another device" {
			on = far
		}
		g := b.graph(on, test.new)
		node, result, r := b.GraphExecUpdate(x, g)
		require.Equal(t, test.want, result, name)
		if test.want == driver.GraphExecUpdateSuccess {
			b.ok(r)
		} else {
			require.Equal(t, driver.ErrorGraphExecUpdateFailure, r, name)
		}
		named := result != driver.GraphExecUpdateSuccess && result != driver.GraphExecUpdateNotSupported
		require.Equal(t, named, node != 0, name)
	}
}

func TestWhatCapturesAllowOfGraphs(t *testing.T) {
	const (
		global  = driver.CaptureModeGlobal
		local   = driver.CaptureModeThreadLocal
		relaxed = driver.CaptureModeRelaxed
	)
	for name, test := range map[string]struct {
		mode driver.CaptureMode
		call func(c *capturing, x driver.GraphExec, g driver.Graph) driver.Result
		want driver.Result
	}{
		"instantiate":              {global, instantiate, driver.ErrorStreamCaptureUnsupported},
		"instantiate, local":       {local, instantiate, driver.ErrorStreamCaptureUnsupported},
		"instantiate, relaxed":     {relaxed, instantiate, driver.Success},
		"destroy executable":       {global, destroyExec, driver.ErrorStreamCaptureUnsupported},
		"destroy executable there": {relaxed, destroyExec, driver.Success},
		"update": {global, func(c *capturing, x driver.GraphExec, g driver.Graph) driver.Result {
			_, _, r := c.GraphExecUpdate(x, g)
			return r
		}, driver.Success},
		"destroy": {global, func(c *capturing, _ driver.GraphExec, g driver.Graph) driver.Result { return c.GraphDestroy(g) }, driver.Success},
		"launch": {global, func(c *capturing, x driver.GraphExec, _ driver.Graph) driver.Result {
			return c.GraphLaunch(x, c.other)
		}, driver.Success},
		"upload": {global, func(c *capturing, x driver.GraphExec, _ driver.Graph) driver.Result {
			return c.GraphUpload(x, c.other)
		}, driver.Success},
		"launch there": {relaxed, func(c *capturing, x driver.GraphExec, _ driver.Graph) driver.Result {
			return c.GraphLaunch(x, c.origin)
		}, driver.ErrorStreamCaptureUnsupported},
		"upload there": {relaxed, func(c *capturing, x driver.GraphExec, _ driver.Graph) driver.Result {
			return c.GraphUpload(x, c.origin)
		}, driver.ErrorStreamCaptureUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the one that captures
			defer runtime.UnlockOSThread()
			b := newBed(t, Config{})
			s := b.stream(0, driver.StreamNonBlocking)
			work := func() { b.gpu.Run(Handle(s), ms) }
			x, g := b.exec(s, work), b.graph(s, work)
			c := newCapturingOn(b, test.mode, driver.StreamNonBlocking)
			c.on(0, func() { require.Equal(t, test.want, test.call(c, x, g)) })
			if test.want == driver.Success {
				require.Equal(t, driver.CaptureActive, c.status(c.origin))
				return
			}
			_, r := c.StreamEndCapture(c.origin)
			require.Equal(t, driver.ErrorStreamCaptureInvalidated, r)
			b.ok(b.GraphExecDestroy(x)) // it is still there
		})
	}
}

func instantiate(c *capturing, _ driver.GraphExec, g driver.Graph) driver.Result {
	_, r := c.GraphInstantiateWithFlags(g, 0)
	return r
}

func destroyExec(c *capturing, x driver.GraphExec, _ driver.Graph) driver.Result {
	return c.GraphExecDestroy(x)
}

func TestFaultInAGraph(t *testing.T) {
	bubble(t, func(b *bed) {
		s, h := b.stream(0, driver.StreamNonBlocking), b.pinned(1)
		g := b.graph(s, func() {})
		x := b.exec(s, func() {
			b.gpu.Run(Handle(s), 5*ms)
			b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
			b.ok(b.MemsetD8Async(driver.HostPtr(at(h)), 1, 1, s))
		})
		b.ok(b.GraphLaunch(x, s))
		require.Equal(t, 5*ms, took(func() { require.Equal(t, driver.ErrorLaunchFailed, b.StreamSynchronize(s)) }))
		require.EqualValues(t, Poison, h[0], "what stood behind the fault had no effect")
		_, _, updated := b.GraphExecUpdate(x, g)
		for i, r := range []driver.Result{b.GraphLaunch(x, s), b.GraphUpload(x, s), updated, b.GraphExecDestroy(x)} {
			require.Equal(t, driver.ErrorLaunchFailed, r, i)
		}
		b.ok(b.GraphDestroy(g))
		require.NotContains(t, strings.Join(b.gpu.Problems(), "\n"), "graph 0x", "both are gone")
	})
}

func TestKillWithALaunchInFlight(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, e := a.stream(0, driver.StreamNonBlocking), a.event(0, shared)
		opened, u := send(a, b, e), b.stream(0, driver.StreamNonBlocking)
		x := a.exec(s, func() {
			a.gpu.Run(Handle(s), 5*ms)
			a.ok(a.EventRecordWithFlags(e, s, driver.EventRecordExternal))
		})
		a.ok(a.GraphLaunch(x, s))
		require.Equal(t, 5*ms, took(func() { b.ok(b.EventSynchronize(opened)) }))
		a.ok(a.GraphLaunch(x, s))
		b.ok(b.StreamWaitEvent(u, opened, 0))
		p.Kill()
		time.Sleep(time.Hour)
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(opened))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(u))
		require.Equal(t, driver.ErrorDeinitialized, a.GraphLaunch(x, s))
		require.Equal(t, driver.ErrorDeinitialized, a.GraphExecDestroy(x))
		require.NotContains(t, strings.Join(b.gpu.Problems(), "\n"), "executable", "a dead process leaks nothing")

		free := b.stream(0, driver.StreamNonBlocking)
		y := b.exec(free, func() { b.ok(b.EventRecordWithFlags(opened, free, driver.EventRecordExternal)) })
		b.ok(b.StreamQuery(free))
		b.ok(b.GraphLaunch(y, free))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(free), "recording it gets stuck too")
	})
}
