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
	owner := other.spareOwner(s)
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

// takeSpare takes the stream's spare event, or makes one. The caller has it
// for itself, so that a wait never refers to another goroutine's later record.
// Once the wait is enqueued the event may be recorded again: the wait keeps to
// the record that it saw.
func (s *Stream) takeSpare() (driver.Event, driver.Result) {
	if e := s.h.spare.Swap(0); e != 0 {
		return driver.Event(e), driver.Success
	}
	var e driver.Event
	r := s.dev.bound(func() (r driver.Result) {
		e, r = s.dev.driver.api.EventCreate(driver.EventDisableTiming)
		return r
	})
	return e, r
}

func (s *Stream) putSpare(e driver.Event) {
	if s.isDefault || !s.h.spare.CompareAndSwap(0, uintptr(e)) {
		s.dev.destroyEvent(e)
	}
}
