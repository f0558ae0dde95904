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

// create makes the native event on d, unless another goroutine already has. It is not a
// pooled one: that must be recorded first.
func (e *Event) create(op string, d *Device) (*handle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, closed(op, "the event")
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
	native, r := d.createEvent(e.opts.flags())
	if r != driver.Success {
		return nil, failure(op, r)
	}
	e.adopt(newHandle(d, kindEvent, uint64(native)))
	return e.h.Load(), nil
}

// pooledOn returns an event of d's pool that is nobody's yet. Unless it may be a used one
// nobody has had it before.
func (e *Event) pooledOn(op string, d *Device, used bool) (*handle, error) {
	if e.opts.Device != nil && e.opts.Device != d {
		return nil, mismatch(op, e.opts.Device, d)
	}
	flags := e.opts.flags()
	var event *pooledEvent
	if used {
		event = d.events.take(flags)
	}
	if used = event != nil; used {
		d.driver.api.Kept.Remove(uint64(event.native))
	} else {
		native, r := d.createEvent(flags)
		if r != driver.Success {
			return nil, failure(op, r)
		}
		event = &pooledEvent{native: native}
	}
	h := newHandle(d, kindEvent, uint64(event.native))
	h.pooled, h.used, h.flags, h.event = true, used, flags, event
	return h, nil
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
		ok := h.acquire()
		runtime.KeepAlive(e) // until then a collected e would close h
		if ok {
			return h, nil
		}
		old := h
		if h = e.h.Load(); h == old { // and was not replaced
			return nil, closed(op, "the event")
		}
	}
	return nil, e.unmade(op)
}

// borrow is acquire for who only asks, see [handle.borrow].
func (e *Event) borrow(op string) (*handle, error) {
	for h := e.h.Load(); h != nil; {
		if h.borrow() {
			return h, nil
		}
		old := h
		if h = e.h.Load(); h == old {
			return nil, closed(op, "the event")
		}
	}
	return nil, e.unmade(op)
}

// unmade says why there is no native event, if that is an error.
func (e *Event) unmade(op string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return closed(op, "the event")
	}
	return e.opts.validate(op)
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
