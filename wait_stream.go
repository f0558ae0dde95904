package cuda

import "github.com/purecuda/cuda/driver"

// WaitStream makes the work enqueued on s from now on wait for all work that
// was enqueued on other before the call (cuEventRecord, cuStreamWaitEvent). It
// returns at once. The streams may be of two devices. Waiting for oneself does
// nothing.
func (s *Stream) WaitStream(other *Stream) error {
	const op = "stream wait stream"
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	if err := other.acquire(op); err != nil {
		return err
	}
	defer other.h.release()
	if s.dev.driver != other.dev.driver {
		return twoDrivers(op)
	}
	if s.Equal(other) {
		return nil
	}
	captures := &s.dev.driver.captures
	amid := captures.active.Load() != 0
	if amid {
		captures.beginning.Lock()
		defer captures.beginning.Unlock()
		if c := s.capture(); c != nil && other.capture() != c {
			return s.outside(op, other.String()+" is")
		}
	}
	uses := other.h.uses.Load() // the record that follows covers them
	owner := other.spareOwner(s).h
	e, r := owner.takeSpare()
	if r != driver.Success {
		return failure(op, r)
	}
	api := s.dev.driver.api
	r = other.call(func(h driver.Stream) driver.Result { return api.EventRecord(e, h) })
	if r == driver.Success {
		r = s.call(func(h driver.Stream) driver.Result { return api.StreamWaitEvent(h, e, 0) })
	}
	owner.putSpare(e)
	if r == driver.Success {
		if c := s.capture(); c != nil {
			c.joinedBy(s)
		} else if uses != 0 && !amid && !s.h.capturing() { // it may have been an edge of a graph
			s.h.joined(other.h, uses)
		}
	}
	return check(op, r)
}

// spareOwner returns the stream whose spare event can be recorded on s so that
// waiter waits: one of s's device, and rather not a default stream, which is
// never closed and so keeps none.
func (s *Stream) spareOwner(waiter *Stream) *Stream {
	if s.isDefault && s.dev == waiter.dev {
		return waiter
	}
	return s
}

// takeSpare takes the spare event of the stream of h, or makes one. The caller
// has it for itself, so that a wait never refers to another goroutine's later
// record. Once the wait is enqueued the event may be recorded again: the wait
// keeps to the record that it saw.
func (h *handle) takeSpare() (driver.Event, driver.Result) {
	if e := h.spare.Swap(0); e != 0 {
		return driver.Event(e), driver.Success
	}
	return h.dev.createEvent(driver.EventDisableTiming)
}

// putSpare gives the event back. Default streams are never closed and so keep
// none.
func (h *handle) putSpare(e driver.Event) {
	if h.native == 0 || h.closed() || !h.spare.CompareAndSwap(0, uintptr(e)) {
		h.dev.destroyEvent(e)
	}
}

// recordSpare records an event, which the caller puts back, on the stream of h.
func (h *handle) recordSpare() (driver.Event, driver.Result) {
	e, r := h.takeSpare()
	if r != driver.Success {
		return 0, r
	}
	r = h.onStream(func(s driver.Stream) driver.Result { return h.dev.driver.api.EventRecord(e, s) })
	if r != driver.Success {
		h.putSpare(e)
		return 0, r
	}
	return e, driver.Success
}
