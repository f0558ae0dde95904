package drivertest

import (
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// What a stream takes while it stands still.

var queueRows = []row{
	{"driver: a full launch queue blocks its caller, and others make no stream", 0, queueIsFull},
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
	for since, begun := time.Now(), time.Now(); time.Since(since) < 50*time.Millisecond || n < queueDepth/2 && time.Since(begun) < rowLimit/2; {
		time.Sleep(time.Millisecond)
		if now := taken.Load(); now != n {
			n, since = now, time.Now()
		}
	}
	if n < queueDepth-20 || n > queueDepth+20 {
		b.t.Errorf("%d memsets were taken, want about %d", n, queueDepth)
	}
	b.ok("StreamQuery of another stream", b.StreamQuery(other))
	b.set(other, more, 2)
	b.ok("EventRecord on another stream", b.EventRecord(e, other))
	b.ok("StreamSynchronize of another stream", b.StreamSynchronize(other))
	b.want("StreamQuery of the stream", b.StreamQuery(s), driver.ErrorNotReady)
	var made driver.Stream
	create := b.start(func() driver.Result {
		return b.in(0, func() (r driver.Result) {
			made, r = b.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			return r
		})
	})
	b.blocked("StreamCreateWithPriority on another thread", create)
	b.blocked("MemsetD8Async", fill)
	h.release()
	b.returns("MemsetD8Async", fill)
	b.returns("StreamCreateWithPriority", create)
	b.ok("StreamDestroy", b.StreamDestroy(made))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
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
