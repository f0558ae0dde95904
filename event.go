package cuda

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Event marks a point in a stream's work. Streams can wait for it, of any
// device; the host can query and wait for it; and two events with timing
// measure the time between them.
//
// The zero value is an event with default options. The native event is made
// when the Event is first recorded, on the recording stream's device, or first
// exported, or, an external one, waited for in a capture; until then the Event has
// no device and its handle is 0. An Event must not be copied. Any number of goroutines may share it.
//
// Only Synchronize and SynchronizeContext wait.
type Event struct {
	opts     EventOptions
	h        atomic.Pointer[handle]
	recorded atomic.Bool

	mu      sync.Mutex // held to make or replace the handle and to close
	closed  bool
	cleanup runtime.Cleanup
	former  []*handle // replaced, and perhaps still waited for
}

// NewEvent makes an event. It makes no driver call and cannot fail; opts that
// contradict each other (Interprocess with Timing) make every use of the event
// fail, the first method called says why. A nil opts means the defaults.
func NewEvent(opts *EventOptions) *Event {
	e := new(Event)
	if opts != nil {
		e.opts = *opts
	}
	return e
}

// Device returns the event's device, or nil before it was made.
func (e *Event) Device() *Device {
	if e == nil || e.h.Load() == nil {
		return nil
	}
	return e.h.Load().dev
}

// Handle returns the native CUevent, 0 before it was made. Other libraries can
// use it for as long as e is open and reachable. They may record it too, so that
// from now on each wait for it on the host asks the driver by itself.
func (e *Event) Handle() driver.Event {
	if e == nil {
		return 0
	}
	h := e.h.Load()
	if h == nil {
		return 0
	}
	if !h.covers.void.Load() || h.waits.Load() != 0 {
		e.mu.Lock()
		defer e.mu.Unlock()
		h = e.h.Load() // it is replaced no more
		h.share()
	}
	return driver.Event(h.native)
}

// Record marks the point that s has reached: the event completes when all work
// enqueued on s before has (cuEventRecord). It returns at once. Recording again
// moves the mark; waits that began before, on streams and on the host, keep to the
// earlier one. (Of an event that others can record too, because it is
// interprocess or external or they have its Handle, those on the host move along.)
//
// The first Record makes the event on s's device. Later only streams of that
// device may record it, others get [ErrDeviceMismatch].
func (e *Event) Record(s *Stream) error {
	const op = "event record"
	if e == nil {
		return nilEvent(op)
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	return e.record(op, s)
}

// Wait makes the work enqueued on s from now on wait for the event
// (cuStreamWaitEvent). It returns at once and never blocks the host. s may be
// of any device. Waiting for an event that was never recorded does nothing.
func (e *Event) Wait(s *Stream) error {
	const op = "stream wait event"
	if e == nil {
		return nilEvent(op)
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	h, err := e.acquire(op)
	if h == nil && err == nil && e.opts.External && s.capture() != nil {
		h, err = e.createToWait(op, s.dev) // the records count that come before the launches
	}
	if h == nil {
		s.h.release()
		return err
	}
	err = e.waitOn(op, h, s)
	h.release()
	s.h.release()
	return err
}

// waitOn is Wait while both are held.
func (e *Event) waitOn(op string, h *handle, s *Stream) error {
	if h.dev.driver != s.dev.driver {
		return twoDrivers(op)
	}
	if h.orphaned() { // s would never run again, unless it is done
		done, err := e.Query()
		if !done && err == nil { // it is being recorded
			err = peerGone(op)
		}
		return named(err, op)
	}
	if e.opts.External || s.dev.driver.captures.active.Load() != 0 {
		return e.waitAmid(op, h, s)
	}
	word, from := h.covers.latest()
	r := s.h.wait(driver.Event(h.native))
	if r == driver.Success && word != 0 {
		h.covers.joinedBy(s, word, from)
	}
	return e.endWait(op, h, s, r)
}

// waitAmid is waitOn where a capture may matter.
func (e *Event) waitAmid(op string, h *handle, s *Stream) error {
	if captures := &s.dev.driver.captures; captures.active.Load() != 0 {
		captures.beginning.Lock()
		defer captures.beginning.Unlock()
	}
	native := driver.Event(h.native)
	if e.opts.External {
		return e.endWait(op, h, s, s.waitExternal(native))
	}
	if s.isDefault && h.notCaptured(op) != nil {
		return s.neverCaptured(op)
	}
	if c := s.capture(); c != nil && h.captured.Load() != c.id {
		switch {
		case e.recorded.Load():
			return s.outside(op, "the event was recorded")
		case e.opts.Interprocess: // by another process, or through another Event
			return s.outside(op, "the event may have been recorded")
		}
	}
	r := s.dev.driver.captures.alone(func() driver.Result { return s.h.wait(native) })
	return e.endWait(op, h, s, r)
}

func (e *Event) endWait(op string, h *handle, s *Stream, r driver.Result) error {
	if r == driver.Success && (e.opts.External || h.captured.Load() != 0) {
		if c := s.capture(); c != nil {
			c.joinedBy(s)
			if e.opts.External {
				c.keep(h) // it is a node
			}
		}
	}
	return checkEvent(op, r)
}

// Query reports whether the work that the event marks is done (cuEventQuery).
// It is true for an event that was never recorded. It needs no stream and no
// device and may be called from any goroutine.
func (e *Event) Query() (bool, error) {
	const op = "event query"
	if e == nil {
		return false, nilEvent(op)
	}
	h, err := e.borrow(op)
	if h == nil {
		return err == nil, err
	}
	done, err := h.query(op)
	h.giveBack()
	if h.overtaken() {
		return e.Query()
	}
	return done, err
}

// Synchronize waits until the work that the event marks is done. It blocks the
// calling goroutine and no thread, see [Event.SynchronizeContext], and returns at
// once if the event was never recorded.
func (e *Event) Synchronize() error { return e.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until the work that the event marks is done, or ctx
// is. It asks the driver in a loop for 0.3 ms (cuEventQuery) and holds no
// thread afterwards, so any number of goroutines can wait. When ctx ends first the
// error matches ctx.Err(), and the work on the device goes on. If the event is
// closed, the wait ends with [ErrClosed]; if the device fails, with [ErrDeviceLost].
//
// What kernels print is flushed by waits for streams and devices, not by this one.
//
// The wait is for the record that it finds, see [Event.Record]. An event made with
// EventOptions.Blocking is not asked in a loop: the wait sleeps from the start.
func (e *Event) SynchronizeContext(ctx context.Context) error {
	const op = "event synchronize"
	if e != nil && e.glance() {
		return nil
	}
	p, err := e.begin(op)
	if p.event == nil {
		return err
	}
	defer p.end()
	return p.wait(ctx, op)
}

// Done returns a channel that delivers one value, nil or an error, when the
// work that the event marks is done, for use in a select:
//
//	select {
//	case err := <-e.Done():
//	case <-ctx.Done():
//	}
//
// Behind it is no goroutine, and a caller that no longer wants the value may
// forget the channel. For an event that was never recorded the value is there at
// once. Closing the event delivers [ErrClosed].
func (e *Event) Done() <-chan error { return done(e, "event wait") }

// begin begins a wait for the last record of the event.
func (e *Event) begin(op string) (pending, error) {
	if e == nil {
		return pending{}, nilEvent(op)
	}
	for {
		h := e.h.Load()
		if h == nil {
			return pending{}, e.unmade(op)
		}
		h.waits.Add(1) // and no reference: a Close must end the wait
		runtime.KeepAlive(e)
		if !h.closed() && !h.replaced.Load() {
			p := pending{event: h, owner: h, keep: e}
			if err := h.notCaptured(op); err != nil {
				p.end()
				return pending{}, err
			}
			return p, nil
		}
		h.waited()
		if e.h.Load() == h { // else it was replaced
			return pending{}, closed(op, "the event")
		}
	}
}

// Close gives the event up. It does not wait; streams that wait for the event still
// do, and waits on the host end with [ErrClosed]. Afterwards every method that can
// fail fails with [ErrClosed]; closing again is nil.
//
// The native event is kept for the next Event that needs one. That of an interprocess
// or external event is destroyed (cuEventDestroy), and, some time later, one whose
// Handle was asked for, or which was last recorded in a capture.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	h := e.h.Load()
	if h == nil {
		return nil
	}
	e.cleanup.Stop()
	for _, old := range e.former {
		old.closeUnneeded()
	}
	e.former = nil
	return check("event close", h.close())
}

// String names the event by device and handle, or says "uninitialized".
func (e *Event) String() string {
	if e == nil {
		return "cuda.Event(nil)"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.h.Load()
	switch {
	case e.closed:
		return "cuda.Event(closed)"
	case h == nil:
		return "cuda.Event(uninitialized)"
	}
	return fmt.Sprintf("cuda.Event(device %d, %#x)", h.dev.index, h.native)
}
