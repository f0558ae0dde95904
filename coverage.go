package cuda

import (
	"runtime"
	"sync/atomic"
)

// coverage is what is known of an event's last record: where it stands among the
// records of its stream, so that of many events that are waited for only the
// oldest of each stream need be asked; and which uses of memory by the stream come
// before it, see [lifetime]: a stream that waits for the event has joined them.
//
// Records may overlap, and waits may overlap records. Then nobody can say which
// record a wait refers to, and nothing is claimed: only a record that no other
// overlapped counts, and only for a wait during which none began.
type coverage struct {
	// word is the last record's place, and counts those under way. It is 0 if
	// nothing is known. Two looks that find the same word and the same stream have
	// found the same record.
	//
	//	bits 24 to 63	how many records the stream had been given when this one was over
	//	bits 16 to 23	how many of them came while it was under way, itself included
	//	bit 15		records have overlapped
	//	bits 0 to 14	records under way
	word   atomic.Uint64
	stream atomic.Pointer[handle]
	uses   atomic.Uint64
	void   atomic.Bool // others may record the event too, so that nothing counts
}

const (
	underWay   = 1<<15 - 1
	overlapped = 1 << 15
	widthShift = 16
	lastShift  = 24
	maxWidth   = 1<<(lastShift-widthShift) - 1
)

// recording is a record under way.
type recording struct{ word, first, uses uint64 }

// begin is called before an event is recorded on the stream of s.
func (c *coverage) begin(s *handle) recording {
	r := recording{uses: s.uses.look(), first: s.records(), word: c.word.Add(1)}
	if r.word&underWay != 1 {
		r.word = c.overlap(r.word)
	}
	return r
}

// overlap is called when another record is under way.
func (c *coverage) overlap(word uint64) uint64 {
	for word&underWay > underWay/2 { // more could not be counted
		c.leave()
		runtime.Gosched()
		word = c.word.Add(1)
	}
	if word&underWay != 1 {
		c.word.Or(overlapped)
	}
	return word
}

// alone reports whether no other record was under way at the beginning of r.
func (r recording) alone() bool { return r.word&(underWay|overlapped) == 1 }

// end is called after the record, with the word of s when it was counted; counts is
// false if it failed or became part of a graph.
func (c *coverage) end(r recording, s *handle, word uint64, counts bool) {
	if r.alone() {
		var place uint64
		last := word >> recordsShift
		if width := (last - r.first) << lastShift >> lastShift; counts && width <= maxWidth {
			place = last<<lastShift | width<<widthShift
			if c.uses.Load() != r.uses {
				c.uses.Store(r.uses)
			}
			if c.stream.Load() != s {
				c.stream.Store(s)
			}
		}
		if c.word.CompareAndSwap(r.word, place) {
			return
		}
	}
	c.leave()
}

// abandon is called instead of end if the event was not recorded after all.
func (c *coverage) abandon(r recording) {
	if !r.alone() || !c.word.CompareAndSwap(r.word, r.word-1) {
		c.leave()
	}
}

// leave ends a record that another one overlapped.
func (c *coverage) leave() {
	for {
		old := c.word.Load()
		left := old - 1
		if left&underWay == 0 {
			left = 0
		}
		if c.word.CompareAndSwap(old, left) {
			return
		}
	}
}

// recording reports whether a record is under way.
func (c *coverage) recording() bool { return c.word.Load()&underWay != 0 }

// latest returns the last record's word and stream, 0 if it does not count.
func (c *coverage) latest() (word uint64, s *handle) {
	word = c.word.Load()
	if word&(underWay|overlapped) != 0 || c.void.Load() {
		return 0, nil
	}
	return word, c.stream.Load()
}

// joinedBy is called when s, which was in no capture, waits for the record that
// latest returned. A capture that others began, or that began meanwhile, may have
// made it an edge of a graph.
func (c *coverage) joinedBy(s *Stream, word uint64, from *handle) {
	uses := c.uses.Load()
	if uses != 0 && c.stream.Load() == from && c.word.Load() == word && !c.void.Load() &&
		!s.h.joinedLately(from, uses) && !s.h.capturing() {
		s.h.joined(from, uses)
	}
}

// place is where a record stands among the records of its stream: the record was
// one of those after number first and up to number last. The numbers wrap around.
type place struct {
	stream      *handle
	first, last uint64
}

// place returns where the last record stands; without a stream if that is not
// known, or so long ago that numbers may have come round. It stays so for an event
// that is waited for, which is not recorded again unless others may record it
// (see [Event.Record]).
func (c *coverage) place() place {
	word, s := c.latest()
	if word == 0 {
		return place{}
	}
	last := word >> lastShift
	if since := (s.records() - last) << lastShift >> lastShift; since > 1<<38 {
		return place{}
	}
	return place{s, last - word>>widthShift&maxWidth, last}
}

// before compares two numbers of records.
func before(a, b uint64) bool { return int64((a-b)<<lastShift) < 0 }
