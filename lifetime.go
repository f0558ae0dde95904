package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// lifetime knows which streams use a piece of memory, so that it is given back
// when the last of them is done and not before. Memory has a home, the stream in
// whose order it is freed. Uses on that stream need no note: the order itself
// makes them come first. Any other stream that uses it gets one mark. Host memory
// has no home, and every stream that uses it a mark. Nor has plain device memory,
// but freeing that waits for its device, so that only streams of other devices
// get marks.
type lifetime struct {
	home  *handle // of a stream, held; nil for host and plain memory
	plain *Device // of plain device memory
	mu    sync.Mutex
	marks atomic.Pointer[[]*mark] // replaced, while mu is held, and never changed
}

// mark says up to which of its uses of memory a stream used this one.
type mark struct {
	stream *handle // held, so that it can still be waited for when its owner has closed it
	use    atomic.Uint64
	// event is recorded after each use on a stream that is not the library's own:
	// that may be destroyed at any time. 0 for the library's streams, on which one
	// is recorded when it is needed.
	event driver.Event
}

// dropped stands for the use of a mark that has been taken off the list.
const dropped = ^uint64(0)

// begin begins the life of memory that was allocated on s, which the caller holds and
// which becomes its home. A stream of others may be gone when the memory is freed;
// then the default stream is the home, and s a stream that uses it.
func (l *lifetime) begin(s *Stream) *lifetime {
	l.home = s.h
	if s.h.foreign() {
		l.home = s.dev.defaultStream.h
	}
	l.home.retain()
	if l.home != s.h {
		l.mark(s.h)
	}
	return l
}

// needsMark reports whether a use on the stream s must be noted.
func (l *lifetime) needsMark(s *handle) bool {
	if l == nil || l.home == s || l.plain != nil && l.plain == s.dev {
		return false
	}
	// A wrapper of the home is the home; while that is held, no other stream has
	// its handle.
	return l.home == nil || l.home.native != s.native || l.home.dev != s.dev
}

// usedOn notes that work was enqueued on s that uses the memory of h. The caller
// holds both, and calls it after the work was enqueued: a record on s that does
// not cover the work must not seem to. in is the capture that s was part of before
// the work was enqueued.
func (h *handle) usedOn(s *Stream, in *capture) {
	if (h.mem == nil || h.mem.home == s.h || h.mem.plain == s.dev) && s.dev.driver.captures.active.Load() == 0 {
		return
	}
	h.noteUse(s, in)
}

func (h *handle) noteUse(s *Stream, in *capture) {
	now := s.capture()
	if now != nil {
		now.keep(h)
		if now == in {
			return // the graph's own edges order what it does
		}
		// A capture began meanwhile: the work may be in it or before it.
	}
	if h.mem.needsMark(s.h) && (now == nil || !s.h.foreign()) {
		h.mem.mark(s.h)
	}
}

func (l *lifetime) mark(s *handle) {
	use := s.uses.note()
	if !s.foreign() {
		if m := l.find(s); m != nil && m.advance(use) {
			return
		}
	}
	l.mu.Lock()
	m := l.add(s, use)
	r := driver.Success
	if s.foreign() { // before anybody can find the mark without its event
		r = m.recordUse()
	}
	l.mu.Unlock()
	if r != driver.Success {
		s.dev.driver.cleanupFailed(failure("record stream", r))
	}
}

// advance moves the mark to a later use; false if it was dropped.
func (m *mark) advance(use uint64) bool {
	for {
		v := m.use.Load()
		if v == dropped {
			return false
		}
		if v >= use || m.use.CompareAndSwap(v, use) {
			return true
		}
	}
}

// recordUse records the event of a mark of a foreign stream.
func (m *mark) recordUse() driver.Result {
	if m.event == 0 {
		e, r := m.stream.dev.createEvent(driver.EventDisableTiming)
		if r != driver.Success {
			return r
		}
		m.event = e
	}
	return m.stream.onStream(func(api *driver.API, s driver.Stream) driver.Result {
		return api.EventRecord(m.event, s)
	})
}

func (l *lifetime) list() []*mark {
	if p := l.marks.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *lifetime) find(s *handle) *mark {
	for _, m := range l.list() {
		if m.stream == s {
			return m
		}
	}
	return nil
}

// add returns the mark of s. If it makes one, it takes those off the list that
// say nothing any more, so that memory which lives long does not collect marks of
// streams that came and went. The caller holds mu.
func (l *lifetime) add(s *handle, use uint64) *mark {
	if m := l.find(s); m != nil && m.advance(use) {
		return m
	}
	var kept []*mark
	for _, m := range l.list() {
		if !l.drop(m) {
			kept = append(kept, m)
		}
	}
	s.retain()
	m := &mark{stream: s}
	m.use.Store(use)
	kept = append(kept, m)
	l.marks.Store(&kept)
	return m
}

// drop lets go of m if its stream has been joined since, or is closed and done.
func (l *lifetime) drop(m *mark) bool {
	use := m.use.Load()
	if use == dropped {
		return true
	}
	over := l.home != nil && l.home.hasJoined(m.stream, use)
	if !over && m.stream.closed() {
		m.stream.uses.look() // so that another use, from now on, has another number
		over = m.done()
	}
	if !over || !m.use.CompareAndSwap(use, dropped) {
		return false
	}
	m.release()
	return true
}

// done asks whether the stream of m has done all that it was given. Asking a
// stream that is being captured would end the capture.
func (m *mark) done() bool {
	d := m.stream.dev
	d.driver.captures.beginning.RLock()
	defer d.driver.captures.beginning.RUnlock()
	if m.event == 0 && d.driver.captures.active.Load() != 0 && m.stream.capturing() {
		return false
	}
	r := d.driver.relaxed(func() driver.Result {
		if m.event != 0 {
			return d.call(func(api *driver.API) driver.Result { return api.EventQuery(m.event) })
		}
		return m.stream.queryStream()
	})
	return r == driver.Success
}

func (m *mark) release() {
	if m.event != 0 {
		m.stream.dev.destroyEvent(m.event)
	}
	m.stream.letOff()
}
