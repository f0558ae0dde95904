package cuda

import (
	"github.com/purecuda/cuda/driver"
)

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
