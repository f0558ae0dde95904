package cuda

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// recordedIn notes that e was recorded in a capture.
func (e *Event) recordedIn(c *capture, h *handle) {
	if e.opts.External {
		c.keep(h) // it is a node
	} else {
		h.captured.Store(c.id)
	}
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

// recordExternal records an external event: as a node if s is capturing, and
// otherwise in the ordinary way, where the driver refuses the flag.
func (s *Stream) recordExternal(e driver.Event) driver.Result {
	return s.call(func(api *driver.API, st driver.Stream) driver.Result {
		status, r := api.StreamIsCapturing(st)
		if r != driver.Success {
			return r
		}
		if status == driver.CaptureNone {
			return api.EventRecord(e, st)
		}
		return api.EventRecordWithFlags(e, st, driver.EventRecordExternal)
	})
}

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

// recordable returns h, the native event, which it makes if there is none, unless s
// cannot record it.
func (e *Event) recordable(op string, h *handle, s *Stream) (*handle, error) {
	if h == nil {
		var err error
		if h, err = e.create(op, s.dev); err != nil {
			return nil, err
		}
	}
	switch {
	case h.closed():
		return h, nil // which has an error of its own
	case h.dev != s.dev:
		return nil, mismatch(op, h.dev, s.dev)
	case h.orphaned():
		return nil, &Error{Op: op, Err: ErrPeerGone, Detail: "the process that exported the event is gone, so that nobody could rely on the record"}
	}
	return h, nil
}

// disown gives h back, which e could not record: it still has the record of who had it
// before.
func (e *Event) disown(h *handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.h.CompareAndSwap(h, nil) {
		e.cleanup.Stop()
		h.closeUnneeded()
	}
}

// recordAnew records e, of which old was the native event: somebody on the host waits
// for its last record and keeps the native event, and e gets another. It lets go of s.
func (e *Event) recordAnew(op string, s *Stream, old *handle) error {
	e.mu.Lock()
	if e.h.Load() != old || old.covers.void.Load() && !e.closed {
		e.mu.Unlock()
		return e.record(op, s)
	}
	defer e.mu.Unlock()
	if e.closed {
		s.h.release()
		return closed(op)
	}
	native, r := old.dev.createEvent(e.opts.flags())
	if r != driver.Success {
		s.h.release()
		return failure(op, r)
	}
	h := newHandle(old.dev, kindEvent, uint64(native))
	h.pooled, h.flags = old.pooled, old.flags
	if err := e.recordOn(op, h, s, h.covers.begin(s.h)); err != nil {
		h.close()
		return err
	}
	e.cleanup.Stop()
	e.adopt(h)
	e.former = append(slices.DeleteFunc(e.former, (*handle).closed), old)
	old.replaced.Store(true)
	if old.waits.Load() == 0 {
		old.closeUnneeded()
	}
	return nil
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

// queryEvent asks the driver; the caller holds a reference.
func (h *handle) queryEvent() driver.Result {
	r := h.dev.driver.api.EventQuery(driver.Event(h.native))
	if r == driver.ErrorInvalidContext {
		r = h.dev.bound(func(api *driver.API) driver.Result { return api.EventQuery(driver.Event(h.native)) })
	}
	return r
}

// queryEventRelaxed is queryEvent in relaxed capture mode.
func (h *handle) queryEventRelaxed() driver.Result {
	if api := h.dev.driver.relaxedAPI; api != nil {
		if r := api.EventQuery(driver.Event(h.native)); r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.driver.relaxed(h.queryEvent)
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
