package drivertest

import "github.com/purecuda/cuda/driver"

// Graphs: what launching one does, and when.

var graphRows = []row{
	{"rule 22 external events time each replay", 0, externalTiming},
	{"rule 22 an external wait waits for the latest record", 0, externalWait},
	{"rule 23 a graph keeps the order of its fork and join", 0, graphForkJoin},
	{"driver: a launch has its place in the stream", 0, launchInOrder},
	{"driver: launches of one executable graph do not overlap", 0, launchesInOrder},
	{"driver: an executable graph may be destroyed in flight", 0, destroyedInFlight},
}

// captured returns the graph of what f enqueues while s is captured. The row
// destroys it.
func (b *bench) captured(s driver.Stream, f func()) driver.Graph {
	b.t.Helper()
	g, r := b.graph(s, driver.CaptureModeRelaxed, f)
	b.ok("StreamEndCapture", r)
	return g
}

// executable makes g executable and destroys it. The row destroys the result.
func (b *bench) executable(g driver.Graph) (x driver.GraphExec) {
	b.t.Helper()
	b.with(0, func() {
		var r driver.Result
		x, r = b.GraphInstantiateWithFlags(g, 0)
		b.ok("GraphInstantiateWithFlags", r)
	})
	b.ok("GraphDestroy", b.GraphDestroy(g))
	return x
}

// exec returns the executable graph of what f enqueues while s is captured. It
// is destroyed when the row ends.
func (b *bench) exec(s driver.Stream, f func()) driver.GraphExec {
	b.t.Helper()
	x := b.executable(b.captured(s, f))
	b.t.Cleanup(func() {
		if r := b.GraphExecDestroy(x); r != driver.Success {
			b.t.Errorf("cleaning up: GraphExecDestroy: %v", r)
		}
	})
	return x
}

// useGraph launches a graph with every kind of node once: see suite.keep.
func (b *bench) useGraph() {
	b.t.Helper()
	s, e := b.stream(0), b.eventWith(0, driver.EventDefault)
	mem, host := b.mem(0, 2*piece), b.pinned(piece)
	x := b.executable(b.captured(s, func() {
		b.ok("external StreamWaitEvent", b.StreamWaitEvent(s, e, driver.EventWaitExternal))
		b.set(s, mem, 1)
		b.copy(s, mem+piece, mem)
		b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), mem, piece, s))
		b.ok("external EventRecordWithFlags", b.EventRecordWithFlags(e, s, driver.EventRecordExternal))
	}))
	b.ok("GraphUpload", b.GraphUpload(x, s))
	b.launch(x, s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.ok("GraphExecDestroy", b.GraphExecDestroy(x))
}

// piece is how much memory the nodes of these rows set and copy.
const piece = 32

func (b *bench) set(s driver.Stream, p driver.DevicePtr, v uint8) {
	b.t.Helper()
	b.ok("MemsetD8Async", b.MemsetD8Async(p, v, piece, s))
}

func (b *bench) copy(s driver.Stream, dst, src driver.DevicePtr) {
	b.t.Helper()
	b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(dst, src, piece, s))
}

func (b *bench) launch(x driver.GraphExec, s driver.Stream) {
	b.t.Helper()
	b.ok("GraphLaunch", b.GraphLaunch(x, s))
}

// contains fails the row unless the piece at p holds v, read in order on s.
func (b *bench) contains(what string, s driver.Stream, p driver.DevicePtr, v byte) {
	b.t.Helper()
	b.filled(what, b.read(s, p, piece), v)
}

func externalTiming(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	start, end := b.eventWith(0, driver.EventDefault), b.eventWith(0, driver.EventDefault)
	x := b.exec(s, func() {
		b.ok("external EventRecordWithFlags", b.EventRecordWithFlags(start, s, driver.EventRecordExternal))
		b.set(s, mem, 1)
		b.ok("external EventRecordWithFlags", b.EventRecordWithFlags(end, s, driver.EventRecordExternal))
		b.ok("EventQuery of an external event, in the capture", b.EventQuery(start))
		b.capturing("a stream after that", s, driver.CaptureActive)
	})
	b.ok("EventQuery before any launch", b.EventQuery(start))
	_, r := b.EventElapsedTime(start, end)
	b.want("EventElapsedTime before any launch", r, driver.ErrorInvalidHandle)
	for range 3 {
		h := b.hold(s)
		b.launch(x, s)
		b.want("EventQuery of a held launch", b.EventQuery(end), driver.ErrorNotReady)
		_, r = b.EventElapsedTime(start, end)
		b.want("EventElapsedTime of a held launch", r, driver.ErrorNotReady)
		h.release()
		b.ok("EventSynchronize", b.EventSynchronize(end))
		ms, r := b.EventElapsedTime(start, end)
		b.ok("EventElapsedTime", r)
		if ms <= 0 {
			b.t.Fatalf("EventElapsedTime over a launch: %v ms", ms)
		}
	}
}

func externalWait(b *bench) {
	s, other := b.stream(0), b.stream(0)
	e, mem := b.event(0), b.mem(0, piece)
	x := b.exec(s, func() {
		b.ok("external StreamWaitEvent", b.StreamWaitEvent(s, e, driver.EventWaitExternal))
		b.set(s, mem, 1)
	})
	b.launch(x, s) // the event was never recorded
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	for range 2 {
		w := b.word()
		h := b.hold(other)
		b.ok("EventRecord", b.EventRecord(e, other))
		b.launch(x, s)
		b.mark(s, w)
		b.unreached("work behind a launch that waits", s, w)
		h.release()
		b.reached("work behind a launch that waited", s, w)
	}
}

func graphForkJoin(b *bench) {
	s, other := b.stream(0), b.stream(0)
	x, y, z := b.mem(0, piece), b.mem(0, piece), b.mem(0, piece)
	fork, join := b.event(0), b.event(0)
	g := b.exec(s, func() {
		b.set(s, x, 1)
		b.ok("EventRecord", b.EventRecord(fork, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(other, fork, 0))
		b.copy(other, y, x)
		b.copy(s, z, x)
		b.ok("EventRecord", b.EventRecord(join, other))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, join, 0))
		b.set(s, x, 2)
	})
	for range 2 {
		for _, p := range []driver.DevicePtr{x, y, z} {
			b.set(s, p, 0)
		}
		b.contains("memory before a launch", s, y, 0)
		b.launch(g, s)
		b.contains("the copy in the joined stream", s, y, 1)
		b.contains("the copy in the captured stream", s, z, 1)
		b.contains("the original, set again after both", s, x, 2)
	}
}

func launchInOrder(b *bench) {
	s := b.stream(0)
	x, y, done := b.mem(0, piece), b.mem(0, piece), b.word()
	g := b.exec(s, func() { b.copy(s, y, x) })
	b.set(s, y, 0)
	h := b.hold(s)
	b.set(s, x, 1)
	b.launch(g, s)
	b.set(s, x, 2)
	b.mark(s, done)
	b.unreached("work behind a held launch", s, done)
	h.release()
	b.reached("work behind the launch", s, done)
	b.contains("what the graph copied", s, y, 1)
	b.contains("what was set after it", s, x, 2)
}

func launchesInOrder(b *bench) {
	s, other := b.stream(0), b.stream(0)
	mem, w := b.mem(0, piece), b.word()
	x := b.exec(s, func() { b.set(s, mem, 1) })
	h := b.hold(s)
	b.launch(x, s)
	b.launch(x, other)
	b.mark(other, w)
	b.unreached("work behind the second launch", other, w)
	h.release()
	b.reached("work behind the second launch, with the first let go", other, w)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func destroyedInFlight(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	b.set(s, mem, 0)
	x := b.executable(b.captured(s, func() { b.set(s, mem, 1) }))
	h := b.hold(s)
	b.launch(x, s)
	b.ok("GraphExecDestroy in flight", b.GraphExecDestroy(x))
	b.want("StreamQuery", b.StreamQuery(s), driver.ErrorNotReady)
	h.release()
	b.contains("what the graph sets", s, mem, 1)
}
