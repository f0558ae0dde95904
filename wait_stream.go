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
	err := other.acquire(op)
	if err == nil {
		err = s.waitFor(op, other)
		other.h.release()
	}
	s.h.release()
	return err
}

// waitFor is WaitStream while both are held.
func (s *Stream) waitFor(op string, other *Stream) error {
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
		if s.isDefault && other.capture() != nil {
			return s.neverCaptured(op)
		}
		if c := s.capture(); c != nil && other.capture() != c {
			return s.outside(op, other.String()+" is")
		}
	}
	uses := other.h.uses.look() // the record that follows covers them
	var r driver.Result
	if amid {
		r = captures.alone(func() driver.Result { return other.h.waitedBy(s.h) })
	} else {
		r = other.h.waitedBy(s.h)
	}
	if r == driver.Success {
		if c := s.capture(); c != nil {
			c.joinedBy(s)
		} else if uses != 0 && !amid && !s.h.joinedLately(other.h, uses) && !s.h.capturing() { // it may have been an edge of a graph
			s.h.joined(other.h, uses)
		}
	}
	return check(op, r)
}

// waitedBy makes the stream of to wait for what the stream of h has been given. Several
// goroutines may do it at once, with the same event: all records are of the same
// stream, so a wait that finds a later one than its own waits for what it would have
// waited for a moment later. Once the wait is enqueued the event may be recorded
// again: the wait keeps to the record that it saw.
func (h *handle) waitedBy(to *handle) driver.Result {
	e, r := h.spareEvent()
	if r != driver.Success {
		return r
	}
	from, waiter := driver.Stream(h.native), driver.Stream(to.native)
	both := func(api *driver.API) driver.Result {
		if api.Fused != nil {
			return api.Fused.RecordWait(e, from, waiter)
		}
		if r := api.EventRecord(e, from); r != driver.Success {
			return r
		}
		return api.StreamWaitEvent(waiter, e, 0)
	}
	switch {
	case from != 0 && waiter != 0:
		return h.dev.call(both)
	case h.dev == to.dev:
		return h.dev.bound(both)
	}
	if r := h.record(e); r != driver.Success { // of two devices, of which each may want its own context
		return r
	}
	return to.wait(e)
}

// spareEvent returns the event that stands for the stream of h when others wait for it.
// It is destroyed with the stream; a default stream's is kept.
func (h *handle) spareEvent() (driver.Event, driver.Result) {
	if e := h.spare.Load(); e != 0 {
		return driver.Event(e), driver.Success
	}
	e, r := h.dev.createEvent(driver.EventDisableTiming)
	if r != driver.Success {
		return 0, r
	}
	if !h.spare.CompareAndSwap(0, uintptr(e)) {
		h.dev.destroyEvent(e)
	} else if h.native == 0 {
		h.dev.driver.api.Kept.Add(uint64(e))
	}
	return driver.Event(h.spare.Load()), driver.Success
}
