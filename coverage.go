package cuda

import "sync/atomic"

// coverage is what an event's last record covers: the uses of memory by the
// recording stream before it, see [lifetime]. A stream that waits for the event
// has joined them.
//
// Records may overlap, and waits may overlap records. Then nobody can say which
// record a wait refers to, and nothing is claimed: only a record that no other
// overlapped counts, and only for a wait during which none began. So every record
// is numbered, those that cover nothing too.
type coverage struct {
	begun, ended atomic.Uint64 // records
	last         atomic.Uint64 // the number of the record that the rest is of
	stream       atomic.Pointer[handle]
	uses         atomic.Uint64
	void         atomic.Bool // others may record the event too, so that nothing counts
}

// begin is called before an event is recorded on the stream of h.
func (c *coverage) begin(h *handle) (n, uses uint64) {
	uses = h.uses.Load()
	n = c.begun.Add(1)
	if c.ended.Load() != n-1 {
		uses = 0 // another record is under way
	}
	return n, uses
}

// end is called after the record; uses is 0 if it counts for nothing.
func (c *coverage) end(n, uses uint64, h *handle) {
	if uses != 0 {
		c.stream.Store(h)
		c.uses.Store(uses)
		c.last.Store(n)
	}
	c.ended.Add(1)
}

// latest returns the number of the last record if it counts, else 0.
func (c *coverage) latest() uint64 {
	n := c.last.Load()
	if n == 0 || c.recording() || c.ended.Load() != n || c.void.Load() {
		return 0
	}
	return n
}

// recording reports whether a record is under way.
func (c *coverage) recording() bool { return c.begun.Load() != c.ended.Load() }

// joinedBy is called when s, which was in no capture, waits for the record n. A
// capture that others began, or that began meanwhile, may have made it an edge of a
// graph.
func (c *coverage) joinedBy(s *Stream, n uint64) {
	h, uses := c.stream.Load(), c.uses.Load()
	if c.begun.Load() == n && !c.void.Load() && !s.h.capturing() {
		s.h.joined(h, uses)
	}
}
