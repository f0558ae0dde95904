package cudatest

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// graph captures what f enqueues.
func (b *bed) graph(s driver.Stream, f func()) driver.Graph {
	b.t.Helper()
	b.ok(b.StreamBeginCapture(s, driver.CaptureModeRelaxed))
	f()
	g, r := b.StreamEndCapture(s)
	b.ok(r)
	return g
}

// exec makes an executable graph of what f enqueues.
func (b *bed) exec(s driver.Stream, f func()) (x driver.GraphExec) {
	b.t.Helper()
	g := b.graph(s, f)
	b.on(0, func() {
		var r driver.Result
		x, r = b.GraphInstantiateWithFlags(g, 0)
		b.ok(r)
	})
	b.ok(b.GraphDestroy(g))
	return x
}

// then makes later work on s wait for what is on other.
func (b *bed) then(other, s driver.Stream) {
	b.t.Helper()
	e := b.event(0, driver.EventDisableTiming)
	b.ok(b.EventRecord(e, other))
	b.ok(b.StreamWaitEvent(s, e, 0))
	b.ok(b.EventDestroy(e))
}

func TestLaunchesTakeTheirTime(t *testing.T) {
	type streams struct{ s, other, third driver.Stream }
	run := func(b *bed, s driver.Stream, n time.Duration) { b.gpu.Run(Handle(s), n*ms) }
	for name, test := range map[string]struct {
		launch func(b *bed, a streams)
		want   time.Duration // until all three streams are idle, in ms
	}{
		"branches are parallel": {func(b *bed, a streams) {
			x := b.exec(a.s, func() {
				run(b, a.s, 2)
				b.then(a.s, a.other)
				run(b, a.other, 10)
				run(b, a.s, 7)
				b.then(a.other, a.s)
				run(b, a.s, 1)
			})
			b.ok(b.GraphLaunch(x, a.s))
			b.ok(b.GraphLaunch(x, a.s))
		}, 2 * 13},
		"earlier and later work": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			run(b, a.third, 5)
			b.ok(b.GraphLaunch(x, a.third))
			run(b, a.third, 3)
		}, 18},
		"one graph on two streams": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			run(b, a.s, 5)
			b.ok(b.GraphLaunch(x, a.s))
			b.ok(b.GraphLaunch(x, a.other))
		}, 25},
		"two graphs on two streams": {func(b *bed, a streams) {
			for _, s := range []driver.Stream{a.s, a.other} {
				x := b.exec(s, func() { run(b, s, 10) })
				b.ok(b.GraphLaunch(x, s))
			}
		}, 10},
		"a launch comes after an upload": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			run(b, a.s, 5)
			b.ok(b.GraphUpload(x, a.s))
			b.ok(b.GraphLaunch(x, a.other))
		}, 15},
		"an upload comes after a launch": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			b.ok(b.GraphLaunch(x, a.s))
			b.ok(b.GraphUpload(x, a.other))
			b.ok(b.StreamSynchronize(a.other))
			b.ok(b.StreamQuery(a.s))
		}, 10},
		"an external wait": {func(b *bed, a streams) {
			e := b.event(0, driver.EventDisableTiming)
			x := b.exec(a.s, func() {
				b.ok(b.StreamWaitEvent(a.s, e, driver.EventWaitExternal))
				run(b, a.s, 1)
			})
			run(b, a.other, 20)
			b.ok(b.EventRecord(e, a.other))
			b.ok(b.GraphLaunch(x, a.s))
			run(b, a.other, 20)
			b.ok(b.EventRecord(e, a.other)) // too late for the launch
			b.ok(b.StreamSynchronize(a.s))
			require.Equal(b.t, driver.ErrorNotReady, b.StreamQuery(a.other))
		}, 40},
		"the default stream": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			blocking := b.stream(0, driver.StreamDefault)
			run(b, blocking, 5)
			b.on(0, func() { b.ok(b.GraphLaunch(x, 0)) })
			run(b, blocking, 3)
			b.ok(b.StreamSynchronize(blocking))
		}, 18},
		"a stream destroyed with its launch in flight": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			gone := b.stream(0, driver.StreamNonBlocking)
			b.ok(b.GraphLaunch(x, gone))
			b.ok(b.StreamDestroy(gone))
			b.on(0, func() { b.ok(b.CtxSynchronize()) })
		}, 10},
		"the nodes' device is busy": {func(b *bed, a streams) {
			x := b.exec(a.s, func() { run(b, a.s, 10) })
			b.ok(b.GraphLaunch(x, b.stream(1, driver.StreamNonBlocking)))
			b.on(0, func() { b.ok(b.CtxSynchronize()) })
		}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				all := [3]driver.Stream{}
				for i := range all {
					all[i] = b.stream(0, driver.StreamNonBlocking)
				}
				require.Equal(t, test.want*ms, took(func() {
					test.launch(b, streams{all[0], all[1], all[2]})
					for _, s := range all {
						b.ok(b.StreamSynchronize(s))
					}
				}))
			})
		})
	}
}

func TestExternalEventsTellExactTimes(t *testing.T) {
	bubble(t, func(b *bed) {
		s, start, end := b.stream(0, driver.StreamNonBlocking), b.event(0, 0), b.event(0, 0)
		x := b.exec(s, func() {
			b.ok(b.EventRecordWithFlags(start, s, driver.EventRecordExternal))
			b.gpu.Run(Handle(s), 5*ms)
			b.ok(b.EventRecordWithFlags(end, s, driver.EventRecordExternal))
		})
		for range 2 {
			time.Sleep(time.Hour)
			b.ok(b.GraphLaunch(x, s))
			b.ok(b.EventSynchronize(end))
			require.Equal(t, float32(5), b.elapsed(start, end))
		}
		b.ok(b.EventRecord(start, s)) // an ordinary record takes its place
		b.ok(b.EventSynchronize(start))
		require.Equal(t, float32(0.0005), b.elapsed(end, start))
	})
}

func TestHoldsAndWordsInGraphs(t *testing.T) {
	bubble(t, func(b *bed) {
		s := b.stream(0, driver.StreamNonBlocking)
		words := b.pinned(8)
		clear(words)
		first, second := driver.HostPtr(at(words)), driver.HostPtr(at(words[4:]))
		var release func()
		x := b.exec(s, func() {
			release = b.gpu.Hold(Handle(s))
			b.ok(b.StreamWaitValue32(s, first, 1, driver.StreamWaitValueEQ))
			b.ok(b.StreamWriteValue32(s, second, 1, 0))
		})
		b.ok(b.GraphLaunch(x, s))
		time.Sleep(time.Hour)
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(s), "held")
		release()
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(s), "the word is not set")
		require.Zero(t, atomic.LoadUint32(word32(words[4:])))
		atomic.StoreUint32(word32(words), 1)
		b.ok(b.StreamSynchronize(s))
		require.EqualValues(t, 1, atomic.LoadUint32(word32(words[4:])))
		atomic.StoreUint32(word32(words), 0)
		b.ok(b.GraphLaunch(x, s))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(s), "the word counts for each launch")
		atomic.StoreUint32(word32(words), 1)
		require.Less(t, took(func() { b.ok(b.StreamSynchronize(s)) }), ms, "the release counts for all")
	})
}

// A graph's nodes run in the contexts that they were captured in.
func TestGraphOfTwoDevices(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	s, far := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
	p, q, h := b.mem(0, 8), b.mem(1, 8), b.pinned(8)
	x := b.exec(s, func() {
		b.ok(b.MemsetD8Async(p, 7, 8, s))
		b.then(s, far)
		b.ok(b.MemcpyPeerAsync(q, b.ctx[1], p, b.ctx[0], 8, far))
		e := b.event(1, driver.EventDisableTiming)
		b.ok(b.EventRecord(e, far))
		b.ok(b.StreamWaitEvent(s, e, 0))
		b.ok(b.MemcpyDtoHAsync(at(h), q, 8, s))
	})
	b.ok(b.GraphLaunch(x, s))
	b.ok(b.StreamSynchronize(s))
	require.Equal(t, bytes.Repeat([]byte{7}, 8), h)

	b.gpu.Fault(Handle(far), driver.ErrorLaunchFailed)
	require.Equal(t, driver.ErrorLaunchFailed, b.GraphLaunch(x, s), "one of its contexts is broken")
	b.ok(b.StreamQuery(s))
	b.ok(b.GraphExecDestroy(x))
}

// An executable graph may be destroyed in a cleanup, which runs outside the
// bubble.
func TestGraphCleanupOutsideTheBubble(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	bubble(t, func(b *bed) {
		s, p, h := b.stream(0, driver.StreamNonBlocking), b.mem(0, 8), b.pinned(8)
		g := b.graph(s, func() {})
		x := b.exec(s, func() {
			b.gpu.Run(Handle(s), 5*ms)
			b.ok(b.MemsetD8Async(p, 1, 8, s))
		})
		b.ok(b.GraphLaunch(x, s))
		b.ok(b.MemcpyDtoHAsync(at(h), p, 8, s))
		requests <- func() {
			b.ok(b.GraphExecDestroy(x))
			b.ok(b.GraphDestroy(g))
		}
		<-answers
		synctest.Wait()
		require.Equal(t, 5*ms, took(func() { b.ok(b.StreamSynchronize(s)) }))
		require.EqualValues(t, 1, h[7], "the launch went on")
	})
}

// Launches that are done are forgotten.
func TestLaunchesDoNotGrow(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	s, far, e := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking), b.event(0, 0)
	p := b.mem(0, 64)
	x := b.exec(s, func() {
		b.ok(b.MemsetD8Async(p, 1, 64, s))
		b.ok(b.EventRecordWithFlags(e, s, driver.EventRecordExternal))
	})
	step := func() {
		for range 2000 {
			b.ok(b.GraphLaunch(x, s))
			b.ok(b.GraphLaunch(x, far))
		}
		b.ok(b.StreamSynchronize(far))
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	step()
	before := heap()
	for range 20 {
		step()
	}
	require.Less(t, heap(), before+1<<20)
	require.Zero(t, len(b.gpu.pending))
	require.Less(t, len(b.gpu.main.contexts[0].orphans), 10_000)
}
