package drivertest

import "github.com/purecuda/cuda/driver"

// Streams by themselves: what they are made as, what they say of themselves,
// and how the processor waits for them.

var streamRows = []row{
	{"rule 02 a created stream is another than the default ones", 0, streamHandle},
	{"rule 02 handles 0 and 1 are one default stream", 0, legacyHandles},
	{"rule 03 a stream reads back how it was made", 0, streamFlags},
	{"rule 04 priority is clamped", 0, streamPriority},
	{"rule 05 a held stream is not ready", 0, streamQuery},
	{"rule 06 synchronizing a busy stream keeps no other waiter", 0, streamsSynchronize},
	{"rule 11 a stream knows its context", 0, streamContext},
	{"rule 11 a stream's id is never used again", 0, streamID},
	{"rule 12 created streams are distinct", 0, streamsDistinct},
	{"rule 24 a stream may be destroyed while its work runs", 0, streamDestroy},
}

func streamHandle(b *bench) {
	s := b.stream(0)
	if s == 0 || s == driver.StreamLegacy || s == driver.StreamPerThread {
		b.t.Fatalf("a created stream has the handle %d of a default stream", s)
	}
}

func legacyHandles(b *bench) {
	h := b.hold(0)
	b.with(0, func() {
		b.want("StreamQuery of handle 0, held", b.StreamQuery(0), driver.ErrorNotReady)
		b.want("StreamQuery of handle 1", b.StreamQuery(driver.StreamLegacy), driver.ErrorNotReady)
		h.release()
		b.ok("StreamSynchronize of handle 1", b.StreamSynchronize(driver.StreamLegacy))
		b.ok("StreamQuery of handle 0", b.StreamQuery(0))
	})
}

func streamFlags(b *bench) {
	for _, want := range []uint32{driver.StreamNonBlocking, driver.StreamDefault} {
		flags, r := b.StreamGetFlags(b.streamWith(0, want, 0))
		b.ok("StreamGetFlags", r)
		equal(b, "the stream's flags", flags, want)
	}
}

func streamPriority(b *bench) {
	var least, greatest int32
	b.with(0, func() {
		var r driver.Result
		least, greatest, r = b.CtxGetStreamPriorityRange()
		b.ok("CtxGetStreamPriorityRange", r)
	})
	// Greater priorities are lower numbers.
	equal(b, "the least priority", least, 0)
	if greatest > least {
		b.t.Fatalf("the greatest priority %d is above the least, %d", greatest, least)
	}
	for _, c := range []struct{ ask, want int32 }{
		{0, 0}, {greatest, greatest}, {+10, least}, {greatest - 10, greatest},
	} {
		got, r := b.StreamGetPriority(b.streamWith(0, driver.StreamNonBlocking, c.ask))
		b.ok("StreamGetPriority", r)
		if got != c.want {
			b.t.Errorf("asked for priority %d: got %d, want %d", c.ask, got, c.want)
		}
	}
}

func streamQuery(b *bench) {
	s := b.stream(0)
	b.ok("StreamQuery of a new stream", b.StreamQuery(s))
	h := b.hold(s)
	b.want("StreamQuery of a held stream", b.StreamQuery(s), driver.ErrorNotReady)
	equal(b, "the code for not ready", driver.ErrorNotReady, 600)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.ok("StreamQuery of a synchronized stream", b.StreamQuery(s))
}

func streamsSynchronize(b *bench) {
	held, free := b.stream(0), b.stream(0)
	h := b.hold(held)
	first := b.start(func() driver.Result { return b.StreamSynchronize(held) })
	b.blocked("StreamSynchronize of a held stream", first)
	second := b.start(func() driver.Result { return b.StreamSynchronize(free) })
	b.returns("StreamSynchronize of a free stream", second)
	b.blocked("StreamSynchronize of a held stream", first)
	h.release()
	b.returns("StreamSynchronize of a released stream", first)
}

func streamContext(b *bench) {
	for d, want := range b.ctx {
		c, r := b.StreamGetCtx(b.stream(d))
		b.ok("StreamGetCtx", r)
		equal(b, "the stream's context", c, want)
	}
}

func streamID(b *bench) {
	seen := map[uint64]bool{}
	for i := range 40 {
		s := b.stream(i % len(b.ctx))
		id, r := b.StreamGetID(s)
		b.need("StreamGetID", r)
		if seen[id] {
			b.t.Fatalf("stream %d has the id %d of an earlier one", i, id)
		}
		seen[id] = true
		again, r := b.StreamGetID(s)
		b.ok("StreamGetID", r)
		equal(b, "the stream's id, asked for again", again, id)
		b.ok("StreamDestroy", b.destroyStream(s))
	}
}

func streamsDistinct(b *bench) {
	seen := map[driver.Stream]bool{}
	for i := range 40 {
		s := b.stream(0)
		if seen[s] {
			b.t.Fatalf("stream %d is one made before", i)
		}
		seen[s] = true
	}
}

func streamDestroy(b *bench) {
	s, w := b.stream(0), b.word()
	h := b.hold(s)
	b.mark(s, w)
	e := b.record(0, s)
	b.ok("StreamDestroy with work in flight", b.destroyStream(s))
	b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
	b.ok("EventQuery", b.EventQuery(e))
	equal(b, "what the destroyed stream wrote", w.load(), 1)
}
