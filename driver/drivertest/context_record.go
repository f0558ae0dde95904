package drivertest

import "github.com/purecuda/cuda/driver"

// Records of a context: an event that stands for the work of all its streams.

var contextRecordRows = []row{
	{"driver: a record of a context covers all its streams", 0, contextRecordCovers},
	{"driver: a record of a context covers no later work", 0, contextRecordLater},
	{"driver: a record of a context holds no stream up", 0, contextRecordApart},
	{"driver: a record of an idle context is done at once", 0, contextRecordIdle},
	{"driver: a record of a context moves the event", 0, contextRecordMoves},
	{"driver: a record of a context needs no current one", 0, contextRecordBare},
	{"driver: streams wait for a record of a context", 0, contextRecordWait},
	{"driver: a record of a context ends the captures in it", 0, contextRecordCapture},
	{"driver: a record of a context from a relaxed thread ends them too", 0, contextRecordRelaxed},
}

// recordContext records e for what the first device's context has been given.
func (b *bench) recordContext(e driver.Event) {
	b.t.Helper()
	b.need("CtxRecordEvent", b.CtxRecordEvent(b.ctx[0], e))
}

func contextRecordCovers(b *bench) {
	s, e := b.stream(0), b.event(0)
	covers := func(first, last driver.Stream) {
		h1, h2 := b.hold(first), b.hold(last)
		e1, e2 := b.busy(first), b.busy(last)
		b.recordContext(e)
		b.want("EventQuery with two busy streams", b.EventQuery(e), driver.ErrorNotReady)
		h1.release()
		b.ok("EventSynchronize of the one stream's work", b.EventSynchronize(e1))
		wait := b.start(func() driver.Result { return b.EventSynchronize(e) })
		b.blocked("EventSynchronize with one busy stream", wait)
		b.want("EventQuery with one busy stream", b.EventQuery(e), driver.ErrorNotReady)
		h2.release()
		b.returns("EventSynchronize", wait)
		b.ok("EventQuery of the other stream's work", b.EventQuery(e2))
	}
	// The default stream before there is a blocking one, which would wait for it.
	for _, other := range []driver.Stream{b.stream(0), 0} {
		covers(s, other)
		covers(other, s)
	}
	blocking := b.streamWith(0, driver.StreamDefault, 0)
	covers(s, blocking)
	covers(blocking, s)
}

func contextRecordLater(b *bench) {
	s, other, e := b.stream(0), b.stream(0), b.event(0)
	h := b.hold(s)
	b.recordContext(e)
	later, elsewhere := b.hold(s), b.hold(other)
	b.want("EventQuery before its point", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
	b.want("StreamQuery of the stream, held again", b.StreamQuery(s), driver.ErrorNotReady)
	b.want("StreamQuery of another, held later", b.StreamQuery(other), driver.ErrorNotReady)
	later.release()
	elsewhere.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
}

func contextRecordApart(b *bench) {
	s, e := b.stream(0), b.event(0)
	others := []driver.Stream{b.stream(0), b.streamWith(0, driver.StreamDefault, 0)}
	h := b.hold(s)
	b.recordContext(e)
	for _, other := range others {
		w := b.word()
		b.mark(other, w)
		b.reached("another stream's later work", other, w)
	}
	b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func contextRecordIdle(b *bench) {
	s, e, w := b.stream(0), b.event(0), b.word()
	b.mark(s, w)
	b.with(0, func() { b.ok("CtxSynchronize", b.CtxSynchronize()) })
	b.recordContext(e)
	b.ok("EventQuery", b.EventQuery(e))
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func contextRecordMoves(b *bench) {
	s, idle, e := b.stream(0), b.stream(0), b.event(0)
	b.recordContext(e)
	b.ok("EventSynchronize", b.EventSynchronize(e))
	h := b.hold(s)
	b.ok("EventQuery of the earlier record", b.EventQuery(e))
	b.recordContext(e)
	b.want("EventQuery of the later record", b.EventQuery(e), driver.ErrorNotReady)
	b.ok("EventRecord on an idle stream", b.EventRecord(e, idle))
	b.ok("EventSynchronize of a stream's record", b.EventSynchronize(e))
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func contextRecordBare(b *bench) {
	s, e := b.stream(0), b.event(0)
	h := b.hold(s)
	b.bare(func() {
		b.recordContext(e)
		b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
		b.want("CtxRecordEvent of no context", b.CtxRecordEvent(0, e), driver.ErrorInvalidContext)
	})
	b.ok("CtxRecordEvent from another thread", b.elsewhere(func() driver.Result { return b.CtxRecordEvent(b.ctx[0], e) }))
	b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func contextRecordWait(b *bench) {
	first, second, waiter := b.stream(0), b.stream(0), b.stream(0)
	e, w := b.event(0), b.word()
	h1, h2 := b.hold(first), b.hold(second)
	b.recordContext(e)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(waiter, e, 0))
	b.mark(waiter, w)
	b.unreached("work behind the wait, with two busy streams", waiter, w)
	h1.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(first))
	b.unreached("work behind the wait, with one busy stream", waiter, w)
	h2.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(waiter))
	equal(b, "what was enqueued behind the wait", w.load(), 1)
}

// captureModes are all there are.
var captureModes = []driver.CaptureMode{driver.CaptureModeGlobal, driver.CaptureModeThreadLocal, driver.CaptureModeRelaxed}

func contextRecordCapture(b *bench) {
	s, e := b.stream(0), b.event(0)
	b.recordContext(e)
	for _, mode := range captureModes {
		r := b.capture(s, mode, func() {
			b.want("CtxRecordEvent", b.CtxRecordEvent(b.ctx[0], e), driver.ErrorStreamCaptureUnsupported)
			b.capturing("the stream whose capture was ended", s, driver.CaptureInvalidated)
		})
		b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
		b.recordContext(e)
		b.ok("EventSynchronize after that", b.EventSynchronize(e))
	}
}

func contextRecordRelaxed(b *bench) {
	s, e := b.stream(0), b.event(0)
	b.recordContext(e)
	for _, mode := range captureModes {
		r := b.capture(s, mode, func() {
			previous, r := b.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			b.ok("ThreadExchangeStreamCaptureMode", r)
			record := b.CtxRecordEvent(b.ctx[0], e)
			_, r = b.ThreadExchangeStreamCaptureMode(previous)
			b.ok("ThreadExchangeStreamCaptureMode", r)
			b.want("CtxRecordEvent", record, driver.ErrorStreamCaptureUnsupported)
			b.capturing("the stream whose capture was ended", s, driver.CaptureInvalidated)
		})
		b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
	}
}
