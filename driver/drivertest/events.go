package drivertest

import (
	"time"

	"github.com/purecuda/cuda/driver"
)

// Events: how they are made, what a record marks, and how time is measured.

var eventRows = []row{
	{"rule 14 event options: which go together", 0, eventFlags},
	{"rule 16 a never-recorded event holds nothing back", 0, neverRecorded},
	{"rule 19 query and synchronize work from any thread", 0, eventFromAnyThread},
	{"rule 19 query and synchronize work with another device current", 2, eventFromOtherDevice},
	{"rule 24 an event may be destroyed while a stream waits for it", 0, eventDestroy},
}

var recordRows = []row{
	{"rule 17 a recorded event is done when the work before it is", 0, recordMarksPoint},
	{"rule 17 record moves the event", 0, recordMoves},
	{"rule 17 record moves the event; an earlier wait keeps the earlier record", 0, earlierWait},
	{"rule 17 an event is recorded on its own device only", 2, recordOtherDevice},
}

var elapsedRows = []row{
	{"rule 20 elapsed: refusals", 0, elapsedRefused},
	{"rule 20 elapsed: events of two devices", 2, elapsedTwoDevices},
	{"rule 20 elapsed: end after start is above zero", 0, elapsedPositive},
	{"rule 20 elapsed: the time that passed", 0, elapsedAccurate},
}

func eventFlags(b *bench) {
	const blocking, untimed, shared = driver.EventBlockingSync, driver.EventDisableTiming, driver.EventInterprocess
	for flags, want := range map[uint32]driver.Result{
		driver.EventDefault:         driver.Success,
		blocking:                    driver.Success,
		untimed:                     driver.Success,
		blocking | untimed:          driver.Success,
		untimed | shared:            driver.Success,
		untimed | shared | blocking: driver.Success,
		shared:                      driver.ErrorInvalidValue, // cannot be timed
		shared | blocking:           driver.ErrorInvalidValue,
		1 << 3:                      driver.ErrorInvalidValue, // unknown
		1 << 31:                     driver.ErrorInvalidValue,
	} {
		var e driver.Event
		r := b.in(0, func() (r driver.Result) {
			e, r = b.EventCreate(flags)
			return r
		})
		if r == driver.Success {
			b.ok("EventDestroy", b.EventDestroy(e))
		}
		if r != want {
			b.t.Errorf("EventCreate with flags %#x: got %v, want %v", flags, outcome(r), outcome(want))
		}
	}
}

func neverRecorded(b *bench) {
	s, e, w := b.stream(0), b.event(0), b.word()
	b.ok("EventQuery", b.EventQuery(e))
	b.ok("EventSynchronize", b.EventSynchronize(e))
	b.ok("StreamWaitEvent", b.StreamWaitEvent(s, e, 0))
	b.mark(s, w)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	equal(b, "what was enqueued after the wait", w.load(), 1)
}

func eventFromAnyThread(b *bench) {
	s := b.stream(0)
	h := b.hold(s)
	e := b.record(0, s)
	query := func() driver.Result { return b.EventQuery(e) }
	wait := b.start(func() driver.Result { return b.EventSynchronize(e) })
	b.bare(func() { b.want("EventQuery without a context", query(), driver.ErrorNotReady) })
	b.want("EventQuery from another thread", b.elsewhere(query), driver.ErrorNotReady)
	b.blocked("EventSynchronize of a held event", wait)
	h.release()
	b.returns("EventSynchronize from another thread", wait)
	b.ok("EventQuery from another thread", b.elsewhere(query))
	b.bare(func() { b.ok("EventSynchronize without a context", b.EventSynchronize(e)) })
}

func eventFromOtherDevice(b *bench) {
	s := b.stream(0)
	h := b.hold(s)
	e := b.record(0, s)
	b.with(1, func() {
		b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
		h.release()
		b.ok("EventSynchronize", b.EventSynchronize(e))
		b.ok("EventQuery", b.EventQuery(e))
	})
}

func eventDestroy(b *bench) {
	s, other, w := b.stream(0), b.stream(0), b.word()
	h := b.hold(s)
	e := b.record(0, s)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(other, e, 0))
	b.ok("EventDestroy of a pending event", b.destroyEvent(e))
	b.mark(other, w)
	b.unreached("work behind the wait", other, w)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
	equal(b, "what was enqueued behind the wait", w.load(), 1)
}

func recordMarksPoint(b *bench) {
	s, w := b.stream(0), b.word()
	h1 := b.hold(s)
	b.mark(s, w)
	e := b.record(0, s)
	h2 := b.hold(s)
	b.want("EventQuery before its point", b.EventQuery(e), driver.ErrorNotReady)
	h1.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
	equal(b, "what was enqueued before the record", w.load(), 1)
	b.ok("EventQuery past its point", b.EventQuery(e))
	b.want("StreamQuery", b.StreamQuery(s), driver.ErrorNotReady)
	h2.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func recordMoves(b *bench) {
	s := b.stream(0)
	e := b.record(0, s)
	b.ok("EventSynchronize", b.EventSynchronize(e))
	h := b.hold(s)
	b.ok("EventQuery of the earlier record", b.EventQuery(e))
	b.ok("EventRecord", b.EventRecord(e, s))
	b.want("EventQuery of the later record", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func earlierWait(b *bench) {
	s, waiter, third := b.stream(0), b.stream(0), b.stream(0)
	w := b.word()

	// Moved to work that is done: the waiter still waits.
	h := b.hold(s)
	e := b.record(0, s)
	b.ok("StreamWaitEvent", b.StreamWaitEvent(waiter, e, 0))
	b.mark(waiter, w)
	b.ok("EventRecord on an idle stream", b.EventRecord(e, third))
	b.ok("EventSynchronize", b.EventSynchronize(e))
	b.unreached("work behind the wait for the earlier record", waiter, w)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(waiter))
	equal(b, "what was enqueued behind the wait", w.load(), 1)

	// Moved to work that is held: the waiter does not wait for it.
	w.store(0)
	h, later := b.hold(s), b.hold(third)
	b.ok("EventRecord", b.EventRecord(e, s))
	b.ok("StreamWaitEvent", b.StreamWaitEvent(waiter, e, 0))
	b.mark(waiter, w)
	b.ok("EventRecord on another held stream", b.EventRecord(e, third))
	b.unreached("work behind the wait for the earlier record", waiter, w)
	h.release()
	b.reached("work behind the wait for the earlier record", waiter, w)
	b.want("EventQuery of the later record", b.EventQuery(e), driver.ErrorNotReady)
	later.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func recordOtherDevice(b *bench) {
	s, other, e := b.stream(0), b.stream(1), b.event(0)
	b.want("EventRecord on another device's stream", b.EventRecord(e, other), driver.ErrorInvalidHandle)
	b.ok("EventRecord on its own", b.EventRecord(e, s))
	b.want("EventRecord on another device's stream", b.EventRecord(e, other), driver.ErrorInvalidHandle)
	b.ok("EventSynchronize", b.EventSynchronize(e))
}

func elapsedRefused(b *bench) {
	s := b.stream(0)
	timed := func() driver.Event { return b.eventWith(0, driver.EventDefault) }
	done, never, pending, untimed := timed(), timed(), timed(), b.event(0)
	b.ok("EventRecord", b.EventRecord(done, s))
	b.ok("EventRecord", b.EventRecord(untimed, s))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	h := b.hold(s)
	b.ok("EventRecord", b.EventRecord(pending, s))
	for _, c := range []struct {
		what       string
		start, end driver.Event
		want       driver.Result
	}{
		{"an untimed start", untimed, done, driver.ErrorInvalidHandle},
		{"an untimed end", done, untimed, driver.ErrorInvalidHandle},
		{"a never-recorded start", never, done, driver.ErrorInvalidHandle},
		{"a never-recorded end", done, never, driver.ErrorInvalidHandle},
		{"a pending start", pending, done, driver.ErrorNotReady},
		{"a pending end", done, pending, driver.ErrorNotReady},
	} {
		_, r := b.EventElapsedTime(c.start, c.end)
		b.want("EventElapsedTime with "+c.what, r, c.want)
	}
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(pending))
	_, r := b.EventElapsedTime(done, pending)
	b.ok("EventElapsedTime of two that are done", r)
}

func elapsedTwoDevices(b *bench) {
	var events [2]driver.Event
	for d := range events {
		s := b.stream(d)
		events[d] = b.eventWith(d, driver.EventDefault)
		b.ok("EventRecord", b.EventRecord(events[d], s))
		b.ok("EventSynchronize", b.EventSynchronize(events[d]))
	}
	_, r := b.EventElapsedTime(events[0], events[1])
	b.want("EventElapsedTime", r, driver.ErrorInvalidHandle)
}

func elapsedPositive(b *bench) {
	s, mem := b.stream(0), b.mem(0, 4096)
	start, end := b.eventWith(0, driver.EventDefault), b.eventWith(0, driver.EventDefault)
	b.ok("EventRecord", b.EventRecord(start, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(mem, 1, 4096, s))
	b.ok("EventRecord", b.EventRecord(end, s))
	b.ok("EventSynchronize", b.EventSynchronize(end))
	ms, r := b.EventElapsedTime(start, end)
	b.ok("EventElapsedTime", r)
	if !(ms > 0) {
		b.t.Fatalf("EventElapsedTime: %v ms", ms)
	}
}

// elapsedAccurate encloses the time between two records by the host's clock:
// they are farther apart than the host slept between the first's completion
// and the second's release, and closer than the host took for all of it.
func elapsedAccurate(b *bench) {
	const slack = 100 * time.Microsecond // what two clocks may differ in
	s := b.stream(0)
	start, end := b.eventWith(0, driver.EventDefault), b.eventWith(0, driver.EventDefault)
	began := time.Now()
	b.ok("EventRecord", b.EventRecord(start, s))
	h := b.hold(s)
	b.ok("EventRecord", b.EventRecord(end, s))
	b.ok("EventSynchronize", b.EventSynchronize(start))
	passed := time.Now()
	time.Sleep(20 * time.Millisecond)
	least := time.Since(passed)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(end))
	most := time.Since(began)
	ms, r := b.EventElapsedTime(start, end)
	b.ok("EventElapsedTime", r)
	got := time.Duration(float64(ms) * float64(time.Millisecond))
	if got < least-slack || got > most+slack {
		b.t.Fatalf("EventElapsedTime: %v, by the host's clock between %v and %v", got, least, most)
	}
}
