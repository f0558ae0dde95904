package drivertest

import "github.com/purecuda/cuda/driver"

// Stream capture, as far as streams and events must know of it.

var captureRows = []row{
	{"rule 13 whether a stream captures can be asked of any", 0, isCapturing},
	{"rule 22 an external record needs a capture", 0, externalOutside},
	{"rule 23 an event recorded in a capture forks and joins", 0, captureForkJoin},
	{"rule 23 an event recorded in a capture belongs to it", 0, capturedEvent},
	{"rule 23 an event of an ended capture says nothing", 0, endedEvent},
	{"rule 23 an interprocess event is recorded in no capture", 0, captureInterprocess},
	{"driver: the streams of a capture have its id", 0, captureID},
	{"driver: the default stream cannot be captured", 0, captureDefault},
	{"driver: a query from any thread ends a global capture", 0, queryEndsGlobal},
	{"driver: a query from a relaxed thread ends no capture", 0, queryRelaxed},
	{"driver: event times end no capture", 0, elapsedInCaptures},
	{"driver: a query ends a thread-local capture from its own thread alone", 0, queryThreadLocal},
}

// graph calls f, on one thread, while s is captured, and returns how the capture
// ended, with the graph if it ended well.
func (b *bench) graph(s driver.Stream, mode driver.CaptureMode, f func()) (g driver.Graph, r driver.Result) {
	b.t.Helper()
	b.with(0, func() {
		b.ok("StreamBeginCapture", b.StreamBeginCapture(s, mode))
		through := false
		defer func() { // also where f fails the row
			if g, r = b.StreamEndCapture(s); r == driver.Success && !through {
				b.GraphDestroy(g)
			}
		}()
		f()
		through = true
	})
	return g, r
}

// capture is graph for rows that do not need the graph.
func (b *bench) capture(s driver.Stream, mode driver.CaptureMode, f func()) driver.Result {
	b.t.Helper()
	g, r := b.graph(s, mode, f)
	if r == driver.Success {
		b.ok("GraphDestroy", b.GraphDestroy(g))
	}
	return r
}

// capturing fails the row unless s is in the capture status want.
func (b *bench) capturing(what string, s driver.Stream, want driver.CaptureStatus) {
	b.t.Helper()
	status, r := b.StreamIsCapturing(s)
	b.ok("StreamIsCapturing", r)
	equal(b, "capture status of "+what, status, want)
}

func isCapturing(b *bench) {
	s, other := b.stream(0), b.stream(0)
	b.capturing("a new stream", s, driver.CaptureNone)
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		b.capturing("the captured stream", s, driver.CaptureActive)
		b.capturing("another stream", other, driver.CaptureNone)
		b.capturing("the default stream", 0, driver.CaptureNone)
		b.ok("from another thread", b.elsewhere(func() driver.Result {
			status, r := b.StreamIsCapturing(s)
			if status != driver.CaptureActive {
				b.t.Errorf("capture status, asked from another thread: %d", status)
			}
			return r
		}))
	}))
	b.capturing("a stream whose capture has ended", s, driver.CaptureNone)
}

func externalOutside(b *bench) {
	s, e := b.stream(0), b.event(0)
	r := b.EventRecordWithFlags(e, s, driver.EventRecordExternal)
	b.want("external EventRecordWithFlags", r, driver.ErrorIllegalState)
	b.ok("plain EventRecordWithFlags", b.EventRecordWithFlags(e, s, 0))
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func captureForkJoin(b *bench) {
	s, other, mem := b.stream(0), b.stream(0), b.mem(0, 64)
	fork, join := b.event(0), b.event(0)
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		b.ok("EventRecord", b.EventRecord(fork, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(other, fork, 0))
		b.capturing("a stream that waits for a captured event", other, driver.CaptureActive)
		b.ok("MemsetD32Async", b.MemsetD32Async(mem, 1, 16, other))
		b.ok("EventRecord", b.EventRecord(join, other))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, join, 0))
	}))
	b.capturing("the joined stream", other, driver.CaptureNone)
}

func capturedEvent(b *bench) {
	s, e := b.stream(0), b.event(0)
	b.capture(s, driver.CaptureModeRelaxed, func() {
		b.ok("EventRecord", b.EventRecord(e, s))
		b.want("EventQuery", b.EventQuery(e), driver.ErrorCapturedEvent)
	})
	b.ok("EventRecord outside a capture", b.EventRecord(e, s))
	b.ok("EventSynchronize", b.EventSynchronize(e))
	b.ok("EventQuery", b.EventQuery(e))
}

func endedEvent(b *bench) {
	s, other, e := b.stream(0), b.stream(0), b.event(0)
	mem := b.mem(0, 64)
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		b.ok("MemsetD32Async", b.MemsetD32Async(mem, 1, 16, s))
		b.ok("EventRecord", b.EventRecord(e, s))
	}))
	b.want("EventQuery", b.EventQuery(e), driver.ErrorInvalidValue)
	b.want("StreamWaitEvent", b.StreamWaitEvent(other, e, 0), driver.ErrorInvalidValue)
	b.ok("EventRecord outside a capture", b.EventRecord(e, s))
	b.ok("StreamWaitEvent after that", b.StreamWaitEvent(other, e, 0))
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

// info fails the row unless s is in the capture status want; it returns the
// capture's id.
func (b *bench) info(what string, s driver.Stream, want driver.CaptureStatus) uint64 {
	b.t.Helper()
	status, id, r := b.StreamGetCaptureInfo(s)
	b.ok("StreamGetCaptureInfo of "+what, r)
	equal(b, "capture status of "+what, status, want)
	if want == driver.CaptureNone {
		equal(b, "capture id of "+what, id, 0)
	}
	return id
}

func captureID(b *bench) {
	s, other, alone := b.stream(0), b.stream(0), b.stream(0)
	fork, join := b.event(0), b.event(0)
	var first, second, third uint64
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		first = b.info("a captured stream", s, driver.CaptureActive)
		b.info("another stream", other, driver.CaptureNone)
		b.ok("EventRecord", b.EventRecord(fork, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(other, fork, 0))
		equal(b, "capture id of a stream that joined", b.info("a stream that joined", other, driver.CaptureActive), first)
		b.ok("EventRecord", b.EventRecord(join, other))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, join, 0))
		b.ok("StreamEndCapture", b.capture(alone, driver.CaptureModeRelaxed, func() {
			second = b.info("a stream with a capture of its own", alone, driver.CaptureActive)
		}))
	}))
	b.info("a stream whose capture has ended", s, driver.CaptureNone)
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		third = b.info("a stream that is captured again", s, driver.CaptureActive)
	}))
	if first == second || first == third || second == third {
		b.t.Errorf("the ids of three captures: %d, %d and %d", first, second, third)
	}
}

func captureDefault(b *bench) {
	b.with(0, func() {
		r := b.StreamBeginCapture(0, driver.CaptureModeRelaxed)
		b.want("StreamBeginCapture of stream 0", r, driver.ErrorStreamCaptureUnsupported)
	})
}

// doneEvent makes an event that is recorded and done, so that a query of it has
// every reason to succeed.
func (b *bench) doneEvent() driver.Event {
	b.t.Helper()
	e := b.record(0, b.stream(0))
	b.ok("EventSynchronize", b.EventSynchronize(e))
	return e
}

func queryEndsGlobal(b *bench) {
	s := b.stream(0)
	e := b.doneEvent()
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		r := b.elsewhere(func() driver.Result { return b.EventQuery(e) })
		b.want("EventQuery from another thread", r, driver.ErrorStreamCaptureUnsupported)
		b.capturing("the stream whose capture was ended", s, driver.CaptureInvalidated)
	})
	b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
	b.capturing("the stream after that", s, driver.CaptureNone)
	b.ok("EventQuery after that", b.EventQuery(e))
}

func captureInterprocess(b *bench) {
	s, e := b.stream(0), b.shared()
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		b.want("EventRecord", b.EventRecord(e, s), driver.ErrorStreamCaptureUnsupported)
	}))
	b.ok("EventRecord after that", b.EventRecord(e, s))
}

func queryRelaxed(b *bench) {
	s := b.stream(0)
	e := b.doneEvent()
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		b.ok("EventQuery from a relaxed thread", b.elsewhere(func() driver.Result {
			previous, r := b.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			if r != driver.Success {
				return r
			}
			query := b.EventQuery(e)
			relaxed, r := b.ThreadExchangeStreamCaptureMode(previous)
			if relaxed != driver.CaptureModeRelaxed || previous != driver.CaptureModeGlobal {
				b.t.Errorf("ThreadExchangeStreamCaptureMode: the modes before were %d and %d", previous, relaxed)
			}
			return max(query, r)
		}))
		b.capturing("the captured stream", s, driver.CaptureActive)
	})
	b.ok("StreamEndCapture", r)
}

// elapsedInCaptures: unlike a query, also while the events are not done.
func elapsedInCaptures(b *bench) {
	s, other := b.stream(0), b.stream(0)
	start, pending := b.eventWith(0, 0), b.eventWith(0, 0)
	b.ok("EventRecord", b.EventRecord(start, other))
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
	h := b.hold(other)
	b.ok("EventRecord", b.EventRecord(pending, other))
	ask := func(end driver.Event) func() driver.Result {
		return func() driver.Result { _, r := b.EventElapsedTime(start, end); return r }
	}
	for _, mode := range captureModes {
		b.ok("StreamEndCapture", b.capture(s, mode, func() {
			b.ok("EventElapsedTime", ask(start)())
			b.ok("EventElapsedTime on another thread", b.elsewhere(ask(start)))
			b.want("EventElapsedTime to a pending event", ask(pending)(), driver.ErrorNotReady)
			b.want("EventElapsedTime to a pending event, on another thread", b.elsewhere(ask(pending)), driver.ErrorNotReady)
			b.capturing("the captured stream", s, driver.CaptureActive)
		}))
	}
	h.release()
}

func queryThreadLocal(b *bench) {
	s := b.stream(0)
	e := b.doneEvent()
	r := b.capture(s, driver.CaptureModeThreadLocal, func() {
		b.ok("EventQuery from another thread", b.elsewhere(func() driver.Result { return b.EventQuery(e) }))
		b.capturing("the captured stream", s, driver.CaptureActive)
		b.want("EventQuery from the capture's thread", b.EventQuery(e), driver.ErrorStreamCaptureUnsupported)
	})
	b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
}
