package cuda

import (
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// waitExternal waits for an external event: by a node if s is capturing.
func (s *Stream) waitExternal(e driver.Event) driver.Result {
	return s.call(func(api *driver.API, st driver.Stream) driver.Result {
		status, r := api.StreamIsCapturing(st)
		switch {
		case r != driver.Success:
			return r
		case status == driver.CaptureNone:
			return api.StreamWaitEvent(st, e, 0)
		}
		return api.StreamWaitEvent(st, e, driver.EventWaitExternal)
	})
}

// create makes the native event on d, unless another goroutine already has.
func (e *Event) create(op string, d *Device) (*handle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, closed(op)
	}
	if h := e.h.Load(); h != nil {
		return h, nil
	}
	if err := e.opts.validate(op); err != nil {
		return nil, err
	}
	if e.opts.Device != nil && e.opts.Device != d {
		return nil, mismatch(op, e.opts.Device, d)
	}
	h, r := d.newEvent(e.opts.flags(), !e.opts.Interprocess && !e.opts.External)
	if r != driver.Success {
		return nil, failure(op, r)
	}
	e.adopt(h)
	return h, nil
}

// newEvent returns a handle of an event, which is pooled or all its own.
func (d *Device) newEvent(flags uint32, pooled bool) (*handle, driver.Result) {
	if !pooled {
		e, r := d.createEvent(flags)
		if r != driver.Success {
			return nil, r
		}
		return newHandle(d, kindEvent, uint64(e)), r
	}
	e, used, r := d.events.take(d, flags)
	if r != driver.Success {
		return nil, r
	}
	h := newHandle(d, kindEvent, uint64(e))
	h.pooled, h.used, h.flags = true, used, flags
	return h, r
}

// share notes that others can record the event from now on.
func (h *handle) share() {
	h.covers.void.Store(true)
	if h.waits.Load() != 0 {
		h.dev.watcher.displace(h)
	}
}

// createToWait makes an event that no stream has recorded, and acquires it.
func (e *Event) createToWait(op string, d *Device) (*handle, error) {
	if e.opts.Device != nil {
		d = e.opts.Device
	}
	if _, err := e.create(op, d); err != nil {
		return nil, err
	}
	return e.acquire(op)
}

// adopt makes h the event's own.
func (e *Event) adopt(h *handle) {
	if e.opts.Interprocess || e.opts.External {
		h.covers.void.Store(true) // other processes, and launches of graphs, record it too
	}
	h.blocking = e.opts.Blocking
	e.cleanup = runtime.AddCleanup(e, (*handle).forget, h)
	e.h.Store(h)
}

// acquire takes a reference to the native event; nil if there is none, with an
// error if that is because e was closed or can never be made.
func (e *Event) acquire(op string) (*handle, error) {
	for h := e.h.Load(); h != nil; {
		ok := h.acquireEvent()
		runtime.KeepAlive(e) // until then a collected e would close h
		if ok {
			return h, nil
		}
		old := h
		if h = e.h.Load(); h == old { // and was not replaced
			return nil, closed(op)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, closed(op)
	}
	return nil, e.opts.validate(op)
}

func nilEvent(op string) error { return invalid(op, "the event is nil") }

func mismatch(op string, event, stream *Device) error {
	if event.driver != stream.driver {
		return twoDrivers(op)
	}
	return &Error{Op: op, Err: ErrDeviceMismatch,
		Detail: fmt.Sprintf("the event is of device %d, the stream of device %d; any stream may wait for it, but only its own device's may record it", event.index, stream.index)}
}

func twoDrivers(op string) error {
	return &Error{Op: op, Err: ErrDeviceMismatch, Detail: "they come from two different drivers"}
}
