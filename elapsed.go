package cuda

import (
	"fmt"
	"math"
	"time"

	"github.com/purecuda/cuda/driver"
)

// ElapsedTime returns the time between two events: from e, the start, to end
// (cuEventElapsedTime). It never waits. The resolution is about half a
// microsecond.
//
// Both events must have been made with timing ([ErrNotTimed]), recorded
// ([ErrNotRecorded]), on one device ([ErrDeviceMismatch]), and have completed
// ([ErrNotCompleted]).
func (e *Event) ElapsedTime(end *Event) (time.Duration, error) {
	const op = "event elapsed time"
	if e == nil || end == nil {
		return 0, nilEvent(op)
	}
	if !e.opts.Timing || !end.opts.Timing || !e.recorded.Load() || !end.recorded.Load() {
		return 0, notMeasurable(op, e, end)
	}
	from, err := e.borrow(op)
	if err != nil {
		return 0, err
	}
	if from == nil { // the first record is not over
		return 0, notMeasurable(op, e, end)
	}
	d, err := from.elapsedTo(op, end)
	from.giveBack()
	if from.overtaken() {
		return e.ElapsedTime(end)
	}
	return d, err
}

// elapsedTo is ElapsedTime while the start is borrowed.
func (h *handle) elapsedTo(op string, end *Event) (time.Duration, error) {
	to, err := end.borrow(op)
	if err != nil {
		return 0, err
	}
	if to == nil {
		return 0, &Error{Op: op, Err: ErrNotRecorded, Detail: "the end event"}
	}
	d, err := h.elapsed(op, to)
	to.giveBack()
	if to.overtaken() {
		return h.elapsedTo(op, end)
	}
	return d, err
}

// elapsed is ElapsedTime while both events are borrowed.
func (h *handle) elapsed(op string, end *handle) (time.Duration, error) {
	if h.dev != end.dev {
		if h.dev.driver != end.dev.driver {
			return 0, twoDrivers(op)
		}
		return 0, &Error{Op: op, Err: ErrDeviceMismatch,
			Detail: fmt.Sprintf("start is of device %d, end of device %d, and their clocks differ", h.dev.index, end.dev.index)}
	}
	if h.captured.Load() != 0 || end.captured.Load() != 0 {
		return 0, &Error{Op: op, Err: ErrCaptured, Detail: "to time a graph, take events with EventOptions.External"}
	}
	ms, r := h.dev.driver.api.EventElapsedTime(driver.Event(h.native), driver.Event(end.native))
	if r == driver.ErrorInvalidContext {
		r = h.dev.bound(func(api *driver.API) (r driver.Result) {
			ms, r = api.EventElapsedTime(driver.Event(h.native), driver.Event(end.native))
			return r
		})
	}
	switch r {
	case driver.Success:
		return time.Duration(math.RoundToEven(float64(ms) * 1e6)), nil
	case driver.ErrorInvalidHandle:
		return 0, &Error{Op: op, Code: r, Err: ErrNotRecorded, Detail: "an external event in a graph is recorded when the graph is launched"}
	case driver.ErrorNotReady:
		return 0, &Error{Op: op, Code: r, Err: ErrNotCompleted, Detail: "synchronize with the end event first"}
	}
	return 0, checkEvent(op, r)
}

// notMeasurable says which of the two events breaks which rule; a closed event
// breaks them all. The rules are checked in this order, each for both events.
func notMeasurable(op string, start, end *Event) error {
	for _, rule := range []struct {
		err   error
		holds func(*Event) bool
	}{
		{ErrNotTimed, func(e *Event) bool { return e.opts.Timing }},
		{ErrNotRecorded, func(e *Event) bool { return e.recorded.Load() }},
	} {
		for i, e := range [...]*Event{start, end} {
			if rule.holds(e) {
				continue
			}
			h, err := e.acquire(op)
			if err != nil {
				return err
			}
			if h != nil {
				h.release()
			}
			return &Error{Op: op, Err: rule.err, Detail: [...]string{"the start event", "the end event"}[i]}
		}
	}
	return &Error{Op: op, Err: ErrNotRecorded} // when the caller looked
}
