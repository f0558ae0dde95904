package cuda

import (
	"github.com/purecuda/cuda/driver"
)

// glance asks a few times whether the last record is done, before a wait for it begins.
// It is for the shortest waits, of a program that waits for one thing at a time: where
// others ask or wait, or captures go on, it does not ask. A capture that begins now does
// not get the native event, see [Event.recordAmid]. If the event is recorded meanwhile,
// the wait was for that record.
func (e *Event) glance() bool {
	h := e.h.Load()
	if h == nil {
		return false
	}
	d := h.dev.driver
	if d.waits.waiting.Load() != 0 || d.captures.active.Load() != 0 ||
		h.blocking || h.covers.recording() || h.covers.void.Load() || !seats.CompareAndSwap(0, 1) {
		return false
	}
	defer leaveSeat()
	if !h.borrow() {
		return false
	}
	n, r := uint64(1), h.queryEventRelaxed()
	for ; n < firstGlances && r == driver.ErrorNotReady; n++ {
		r = h.queryEventRelaxed()
	}
	h.giveBack()
	d.waits.queries.Add(n)
	return r == driver.Success && !h.overtaken()
}

// query is Query while the event is borrowed.
func (h *handle) query(op string) (bool, error) {
	if h.dev.driver.captures.active.Load() != 0 {
		return h.queryAmid(op)
	}
	gone := h.orphaned()
	return h.answered(op, h.queryEvent(), gone)
}

// queryAmid is query while streams may be capturing.
func (h *handle) queryAmid(op string) (bool, error) {
	beginning := &h.dev.driver.captures.beginning
	beginning.RLock() // so that it does not become part of a capture now
	defer beginning.RUnlock()
	if h.covers.recording() { // perhaps in a capture that has just begun
		return false, nil
	}
	if err := h.notCaptured(op); err != nil {
		return false, err
	}
	gone := h.orphaned()
	return h.answered(op, h.queryEventRelaxed(), gone)
}

// answered says what the driver's answer means; gone is whether the event's exporter was
// gone before.
func (h *handle) answered(op string, r driver.Result, gone bool) (bool, error) {
	switch {
	case r == driver.Success:
		return true, nil
	case r != driver.ErrorNotReady:
		return false, checkEvent(op, r)
	case gone:
		return false, peerGone(op)
	}
	return false, nil
}

// notCaptured refuses a question that would end the capture in which the event of
// h was recorded.
func (h *handle) notCaptured(op string) error {
	id := h.captured.Load()
	if id == 0 || !h.dev.driver.captures.has(id) {
		return nil
	}
	return &Error{Op: op, Err: ErrCaptured, Detail: "the capture is going on"}
}
