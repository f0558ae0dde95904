package drivertest

import (
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// What a stream takes while it stands still.

var queueRows = []row{
	{"driver: a full launch queue blocks its caller and who uses the stream, and others make no stream", 0, queueIsFull},
	{"driver: records and waits fill no launch queue", 0, queueOfRecords},
}

// queueDepth is how many operations fill a queue, more or less.
const queueDepth = 1020

func queueIsFull(b *bench) {
	s, other, e := b.stream(0), b.stream(0), b.event(0)
	mem, more := b.mem(0, piece), b.mem(0, piece)
	h := b.hold(s)
	var taken atomic.Int64
	fill := b.start(func() driver.Result {
		for range 2 * queueDepth {
			if r := b.MemsetD8Async(mem, 1, piece, s); r != driver.Success {
				return r
			}
			taken.Add(1)
		}
		return driver.Success
	})
	n := taken.Load()
	for since, begun := time.Now(), time.Now(); time.Since(since) < 50*time.Millisecond || n < queueDepth-20 && time.Since(begun) < rowLimit/4; {
		time.Sleep(time.Millisecond)
		if now := taken.Load(); now != n {
			n, since = now, time.Now()
		}
	}
	if n < queueDepth-20 || n > queueDepth+20 {
		b.t.Errorf("%d memsets were taken, want about %d", n, queueDepth)
	}
	b.goesOn("StreamQuery of another stream", func() driver.Result { return b.StreamQuery(other) })
	b.goesOn("MemsetD8Async on another stream", func() driver.Result { return b.MemsetD8Async(more, 2, piece, other) })
	b.goesOn("EventRecord on another stream", func() driver.Result { return b.EventRecord(e, other) })
	b.goesOn("StreamSynchronize of another stream", func() driver.Result { return b.StreamSynchronize(other) })
	b.goesOn("StreamIsCapturing of the stream", func() driver.Result { _, r := b.StreamIsCapturing(s); return r })
	var made driver.Stream
	create := b.start(func() driver.Result {
		return b.in(0, func() (r driver.Result) {
			made, r = b.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			return r
		})
	})
	b.blocked("StreamCreateWithPriority on another thread", create)
	query := b.start(func() driver.Result { return b.StreamQuery(s) })
	b.blocked("StreamQuery of the stream", query)
	b.blocked("MemsetD8Async", fill)
	h.release()
	<-query.done
	b.returns("MemsetD8Async", fill)
	b.returns("StreamCreateWithPriority", create)
	b.ok("StreamDestroy", b.StreamDestroy(made))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

// goesOn fails the row unless a call returns soon, and well.
func (b *bench) goesOn(what string, f func() driver.Result) {
	b.t.Helper()
	c := b.start(f)
	select {
	case <-c.done:
		b.ok(what, c.r)
	case <-time.After(rowLimit / 4):
		b.t.Errorf("%s blocks", what)
	}
}

func queueOfRecords(b *bench) {
	s, e, other := b.stream(0), b.event(0), b.record(0, b.stream(0))
	h := b.hold(s)
	for range 2 * queueDepth {
		b.ok("EventRecord", b.EventRecord(e, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, other, 0))
	}
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}
