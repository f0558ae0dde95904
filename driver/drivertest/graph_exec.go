package drivertest

import "github.com/purecuda/cuda/driver"

// Graphs: making them executable, updating them, and what of it a capture allows.

var graphExecRows = []row{
	{"driver: an executable graph takes other parameters", 0, updateParameters},
	{"driver: an executable graph takes no other nodes", 0, updateNodes},
	{"driver: an uploaded graph has not run", 0, uploadRunsNothing},
	{"driver: an empty capture is a graph too", 0, emptyGraph},
	{"driver: a graph's nodes are its work and external events", 0, graphNodes},
	{"driver: a graph needs a context to be instantiated", 0, instantiateContext},
	{"driver: a graph needs no context to be launched", 0, launchContext},
	{"driver: a graph launches on another device's stream", 2, launchElsewhere},
	{"driver: a capture takes in no graph", 0, launchIntoCapture},
	{"driver: a global capture forbids instantiating", 0, instantiateInGlobal},
	{"driver: a global capture allows launches beside it", 0, launchInGlobal},
}

func updateParameters(b *bench) {
	s := b.stream(0)
	x, y := b.mem(0, piece), b.mem(0, piece)
	g := b.exec(s, func() { b.set(s, x, 1) })
	other := b.captured(s, func() { b.set(s, x, 2) })
	h := b.hold(s)
	b.launch(g, s)
	_, result, r := b.GraphExecUpdate(g, other)
	b.ok("GraphExecUpdate", r)
	equal(b, "the update's result", result, driver.GraphExecUpdateSuccess)
	b.ok("GraphDestroy", b.GraphDestroy(other))
	b.copy(s, y, x)
	b.launch(g, s)
	h.release()
	b.contains("what the launch before the update set", s, y, 1)
	b.contains("what the launch after it set", s, x, 2)
}

func updateNodes(b *bench) {
	s := b.stream(0)
	x, y := b.mem(0, piece), b.mem(0, piece)
	b.set(s, x, 0)
	b.set(s, y, 0)
	g := b.exec(s, func() { b.set(s, x, 1) })
	for what, f := range map[string]func(){
		"a graph of two nodes":         func() { b.set(s, x, 2); b.set(s, y, 2) },
		"a copy in the place of a set": func() { b.copy(s, x, y) },
	} {
		other := b.captured(s, f)
		_, result, r := b.GraphExecUpdate(g, other)
		b.ok("GraphDestroy", b.GraphDestroy(other))
		b.want("GraphExecUpdate by "+what, r, driver.ErrorGraphExecUpdateFailure)
		if result == driver.GraphExecUpdateSuccess {
			b.t.Fatalf("GraphExecUpdate by %s failed with the result Success", what)
		}
	}
	b.launch(g, s)
	b.contains("what the first graph sets", s, x, 1)
	b.contains("what it does not", s, y, 0)
}

func uploadRunsNothing(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	b.set(s, mem, 0)
	x := b.exec(s, func() { b.set(s, mem, 1) })
	b.ok("GraphUpload", b.GraphUpload(x, s))
	b.contains("memory after an upload", s, mem, 0)
	b.launch(x, s)
	b.contains("memory after a launch", s, mem, 1)
}

func emptyGraph(b *bench) {
	s, w := b.stream(0), b.word()
	g := b.captured(s, func() {})
	n, r := b.GraphGetNodes(g, nil)
	b.ok("GraphGetNodes", r)
	equal(b, "nodes of an empty graph", n, 0)
	x := b.executable(g)
	b.launch(x, s)
	b.mark(s, w)
	b.reached("work behind the launch of an empty graph", s, w)
	b.ok("GraphExecDestroy", b.GraphExecDestroy(x))
}

func graphNodes(b *bench) {
	s, mem := b.stream(0), b.mem(0, 2*piece)
	inside, start, end := b.event(0), b.event(0), b.event(0)
	g := b.captured(s, func() {
		b.ok("external EventRecordWithFlags", b.EventRecordWithFlags(start, s, driver.EventRecordExternal))
		b.set(s, mem, 1)
		b.ok("EventRecord", b.EventRecord(inside, s))
		b.copy(s, mem+piece, mem)
		b.ok("external EventRecordWithFlags", b.EventRecordWithFlags(end, s, driver.EventRecordExternal))
	})
	n, r := b.GraphGetNodes(g, nil)
	b.ok("GraphGetNodes", r)
	b.ok("GraphDestroy", b.GraphDestroy(g))
	equal(b, "nodes of a set, a copy and two external events", n, 4)
}

func instantiateContext(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	g := b.captured(s, func() { b.set(s, mem, 1) })
	b.bare(func() {
		_, r := b.GraphInstantiateWithFlags(g, 0)
		b.want("GraphInstantiateWithFlags without a context", r, driver.ErrorInvalidContext)
		b.ok("GraphDestroy without a context", b.GraphDestroy(g))
	})
}

func launchContext(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	x := b.executable(b.captured(s, func() { b.set(s, mem, 1) }))
	other := b.captured(s, func() { b.set(s, mem, 2) })
	b.bare(func() {
		_, _, r := b.StreamGetCaptureInfo(s)
		b.ok("StreamGetCaptureInfo", r)
		b.ok("GraphUpload", b.GraphUpload(x, s))
		b.ok("GraphLaunch", b.GraphLaunch(x, s))
		_, _, r = b.GraphExecUpdate(x, other)
		b.ok("GraphExecUpdate", r)
		b.launch(x, s)
		b.contains("what the graph sets", s, mem, 2)
		b.ok("GraphExecDestroy", b.GraphExecDestroy(x))
		b.ok("GraphDestroy", b.GraphDestroy(other))
	})
}

func launchElsewhere(b *bench) {
	s, far := b.stream(0), b.stream(1)
	mem, w := b.mem(0, piece), b.word()
	x := b.exec(s, func() { b.set(s, mem, 1) })
	b.set(s, mem, 0)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.launch(x, far)
	b.mark(far, w)
	b.reached("work behind the launch", far, w)
	b.contains("what the graph sets", s, mem, 1)
}

func launchIntoCapture(b *bench) {
	s, mem := b.stream(0), b.mem(0, piece)
	x := b.exec(s, func() { b.set(s, mem, 1) })
	for what, call := range map[string]func(driver.GraphExec, driver.Stream) driver.Result{
		"GraphLaunch": b.GraphLaunch, "GraphUpload": b.GraphUpload,
	} {
		r := b.capture(s, driver.CaptureModeRelaxed, func() {
			b.set(s, mem, 2)
			b.want(what+" on a captured stream", call(x, s), driver.ErrorStreamCaptureUnsupported)
			b.capturing("the stream after a "+what, s, driver.CaptureInvalidated)
		})
		b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
	}
	b.launch(x, s)
	b.contains("what the graph sets", s, mem, 1)
}

func instantiateInGlobal(b *bench) {
	s, other, mem := b.stream(0), b.stream(0), b.mem(0, piece)
	g := b.captured(other, func() { b.set(other, mem, 1) })
	instantiate := func() driver.Result {
		_, r := b.GraphInstantiateWithFlags(g, 0)
		return r
	}
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		r := b.elsewhere(func() driver.Result { return b.in(0, instantiate) })
		b.want("GraphInstantiateWithFlags from another thread", r, driver.ErrorStreamCaptureUnsupported)
		b.capturing("the stream whose capture was ended", s, driver.CaptureInvalidated)
	})
	b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
	b.ok("GraphDestroy", b.GraphDestroy(g))
}

func launchInGlobal(b *bench) {
	s, other, mem := b.stream(0), b.stream(0), b.mem(0, piece)
	x := b.exec(other, func() { b.set(other, mem, 1) })
	g := b.captured(other, func() { b.set(other, mem, 2) })
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		b.ok("GraphUpload", b.GraphUpload(x, other))
		b.launch(x, other)
		_, _, r := b.GraphExecUpdate(x, g)
		b.ok("GraphExecUpdate", r)
		b.launch(x, other)
		b.capturing("the captured stream", s, driver.CaptureActive)
	})
	b.ok("StreamEndCapture", r)
	b.ok("GraphDestroy", b.GraphDestroy(g))
	b.contains("what the updated graph sets", other, mem, 2)
}
