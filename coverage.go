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

// void makes all records count for nothing from now on, because others may record
// the event too: it is a record that never ends.
func (c *coverage) void() { c.begun.Add(1) }

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
	if n == 0 || c.begun.Load() != n || c.ended.Load() != n {
		return 0
	}
	return n
}

// joinedBy is called when s, which was in no capture, waits for the record n. A
// capture that others began, or that began meanwhile, may have made it an edge of a
// graph.
func (c *coverage) joinedBy(s *Stream, n uint64) {
	h, uses := c.stream.Load(), c.uses.Load()
	if c.begun.Load() == n && !s.h.capturing() {
		s.h.joined(h, uses)
	}
}
