package drivertest

import "github.com/purecuda/cuda/driver"

// Order: within a stream, between streams by events, and with the default
// stream. Each row holds a stream first, so that all its work is enqueued
// before any of it can run.

var orderRows = []row{
	{"rule 01 work in a stream runs in order", 0, orderInStream},
	{"rule 01 two streams are ordered by events alone", 0, orderByEvents},
	{"rule 03 a blocking stream and the default stream wait for each other", 0, blockingWithDefault},
	{"rule 03 a non-blocking stream and the default stream do not", 0, nonBlockingWithDefault},
	{"rule 03 an event recorded on the default stream is work of it", 0, recordOnDefault},
	{"rule 07 only work enqueued after the wait waits", 0, waitOrdersLater},
	{"rule 07 waiting for a stream covers what it had been given", 0, waitCoversEarlier},
	{"rule 07 a stream may wait for itself", 0, waitForItself},
	{"rule 09 streams wait for events of another device", 2, waitAcrossDevices},
	{"rule 18 a wait never blocks the host", 0, waitNeverBlocks},
}

func orderInStream(b *bench) {
	const n = 4096
	s := b.stream(0)
	x, first, second := b.mem(0, n), b.mem(0, n), b.mem(0, n)
	h := b.hold(s)
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 1, n, s))
	b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(first, x, n, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 2, n, s))
	b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(second, x, n, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 3, n, s))
	h.release()
	b.filled("the first copy", b.read(s, first, n), 1)
	b.filled("the second copy", b.read(s, second, n), 2)
	b.filled("the original", b.read(s, x, n), 3)
}

func orderByEvents(b *bench) {
	const n = 4096
	s, other := b.stream(0), b.stream(0)
	x, y := b.mem(0, n), b.mem(0, n)
	h := b.hold(s)
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 1, n, s))
	written := b.record(0, s)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(other, written, 0))
	b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(y, x, n, other))
	read := b.record(0, other)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(s, read, 0))
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 2, n, s))
	b.want("EventQuery of the other stream's event", b.EventQuery(read), driver.ErrorNotReady)
	h.release()
	b.filled("the original", b.read(s, x, n), 2)
	b.filled("the other stream's copy", b.read(other, y, n), 1)
}

// busy gives s an operation that counts as work to any driver: how the default
// stream is to wait for a bare hold is nowhere said.
func (b *bench) busy(s driver.Stream) driver.Event {
	b.t.Helper()
	e, mem := b.event(0), b.mem(0, 64)
	b.with(0, func() {
		b.ok("MemsetD32Async", b.MemsetD32Async(mem, 1, 16, s))
		b.ok("EventRecord", b.EventRecord(e, s))
	})
	return e
}

func blockingWithDefault(b *bench) {
	s := b.streamWith(0, driver.StreamDefault, 0)
	for _, c := range []struct{ held, other driver.Stream }{{s, 0}, {0, s}} {
		h := b.hold(c.held)
		b.busy(c.held)
		e := b.busy(c.other)
		wait := b.start(func() driver.Result { return b.EventSynchronize(e) })
		b.blocked("EventSynchronize of later work of the one, while the other is held", wait)
		h.release()
		b.returns("EventSynchronize", wait)
	}
}

func nonBlockingWithDefault(b *bench) {
	s := b.stream(0)
	for _, c := range []struct{ held, other driver.Stream }{{s, 0}, {0, s}} {
		h := b.hold(c.held)
		busy := b.busy(c.held)
		b.ok("EventSynchronize", b.EventSynchronize(b.busy(c.other)))
		b.want("EventQuery of the held stream's event", b.EventQuery(busy), driver.ErrorNotReady)
		h.release()
		b.ok("EventSynchronize", b.EventSynchronize(busy))
	}
}

// recordOnDefault: the default stream has nothing but the record to do, which waits
// for one blocking stream; another that comes later waits for the record.
func recordOnDefault(b *bench) {
	busy, later := b.streamWith(0, driver.StreamDefault, 0), b.streamWith(0, driver.StreamDefault, 0)
	for what, flags := range map[string]uint32{"with timing": driver.EventDefault, "without timing": driver.EventDisableTiming} {
		e := b.eventWith(0, flags)
		h := b.hold(busy)
		b.busy(busy)
		b.ok("EventSynchronize of work that nothing orders", b.EventSynchronize(b.busy(later)))
		b.ok("EventRecord on the default stream", b.in(0, func() driver.Result { return b.EventRecord(e, 0) }))
		done := b.busy(later)
		wait := b.start(func() driver.Result { return b.EventSynchronize(done) })
		b.blocked("EventSynchronize of work behind a record "+what, wait)
		b.want("EventQuery of the record "+what, b.EventQuery(e), driver.ErrorNotReady)
		h.release()
		b.returns("EventSynchronize", wait)
		b.ok("EventQuery of the record "+what, b.EventQuery(e))
	}
}

func waitOrdersLater(b *bench) {
	s, other := b.stream(0), b.stream(0)
	before, after := b.word(), b.word()
	h := b.hold(s)
	e := b.record(0, s)
	b.mark(other, before)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(other, e, 0))
	b.mark(other, after)
	b.reached("work enqueued before the wait", other, before)
	b.unreached("work enqueued after the wait", other, after)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
	equal(b, "what was enqueued after the wait", after.load(), 1)
}

func waitCoversEarlier(b *bench) {
	s, other := b.stream(0), b.stream(0)
	w := b.word()
	h1 := b.hold(s)
	e := b.record(0, s)
	h2 := b.hold(s) // after the record, so no business of the waiter
	b.ok("StreamWaitEvent", b.StreamWaitEvent(other, e, 0))
	b.mark(other, w)
	b.unreached("the waiter", other, w)
	h1.release()
	b.reached("the waiter, with all before the record done", other, w)
	b.want("StreamQuery of the stream, held again", b.StreamQuery(s), driver.ErrorNotReady)
	h2.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func waitForItself(b *bench) {
	s, w := b.stream(0), b.word()
	h := b.hold(s)
	e := b.record(0, s)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(s, e, 0))
	b.mark(s, w)
	b.unreached("work after the wait", s, w)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	equal(b, "what was enqueued after the wait", w.load(), 1)
}

func waitAcrossDevices(b *bench) {
	streams := [2]driver.Stream{b.stream(0), b.stream(1)}
	for from, s := range streams {
		other, w := streams[1-from], b.word()
		h := b.hold(s)
		e := b.record(from, s)
		b.ok("StreamWaitEvent", b.StreamWaitEvent(other, e, 0))
		b.mark(other, w)
		b.unreached("the other device's work", other, w)
		h.release()
		b.ok("StreamSynchronize", b.StreamSynchronize(other))
		equal(b, "what the other device wrote", w.load(), 1)
	}
}

func waitNeverBlocks(b *bench) {
	s, other := b.stream(0), b.stream(0)
	h := b.hold(s)
	e := b.record(0, s)
	// A wait that blocks here outlasts the row's time.
	for range 100 {
		b.ok("StreamWaitEvent", b.StreamWaitEvent(other, e, 0))
	}
	b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
	b.want("StreamQuery of the waiting stream", b.StreamQuery(other), driver.ErrorNotReady)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
}
