package cuda

import (
	"runtime"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// record is Record while the stream is held, which it lets go of. The event needs no
// reference: it is not destroyed while its coverage counts a record under way.
func (e *Event) record(op string, s *Stream) error {
	h := e.h.Load()
	if h == nil || h.dev != s.dev || h.shared != nil {
		var err error
		if h, err = e.recordable(op, h, s); err != nil {
			s.h.release()
			return err
		}
	}
	rec := h.covers.begin(s.h)
	runtime.KeepAlive(e) // until then a collected e would close h
	if h.closed() || h.waits.Load() != 0 && !h.covers.void.Load() {
		h.covers.abandon(rec)
		h.releaseAfterRecord()
		return e.recordAnew(op, s, h)
	}
	return e.recordOn(op, h, s, rec)
}

// recordOn records h, which is e's or will be, and lets go of s and of h.
func (e *Event) recordOn(op string, h *handle, s *Stream, rec recording) error {
	captures := &s.dev.driver.captures
	if e.opts.External || captures.active.Load() != 0 {
		return e.recordAmid(op, h, s, rec)
	}
	r := s.h.record(driver.Event(h.native))
	return e.endRecord(op, h, s, rec, r)
}

// recordAmid is recordOn where a capture may matter.
func (e *Event) recordAmid(op string, h *handle, s *Stream, rec recording) error {
	unlock := func() {}
	if captures := &s.dev.driver.captures; captures.active.Load() != 0 {
		captures.beginning.Lock()
		unlock = captures.beginning.Unlock
	}
	if h.used && !h.covers.void.Load() && s.capture() != nil {
		// Others have had the native event: a call of theirs that their Close has
		// overtaken could end the capture.
		unlock()
		h.covers.abandon(rec)
		h.releaseAfterRecord()
		return e.recordAnew(op, s, h)
	}
	defer unlock()
	if e.opts.Interprocess && !e.opts.External && s.capture() != nil { // the driver would end it
		h.covers.end(rec, s.h, s.h.releaseRecorded(), false)
		h.releaseAfterRecord()
		return &Error{Op: op, Err: ErrCapturing, Detail: "an interprocess event cannot be recorded in a capture"}
	}
	native := driver.Event(h.native)
	if e.opts.External {
		return e.endRecord(op, h, s, rec, s.recordExternal(native))
	}
	return e.endRecord(op, h, s, rec, s.h.record(native))
}

func (e *Event) endRecord(op string, h *handle, s *Stream, rec recording, r driver.Result) error {
	counts := r == driver.Success
	if counts {
		if !e.recorded.Load() {
			e.recorded.Store(true)
		}
		if s.dev.driver.captures.active.Load() != 0 || h.captured.Load() != 0 {
			if c := s.capture(); c != nil {
				counts = false // nothing is reached until the graph is launched
				e.recordedIn(c, h)
			} else {
				h.captured.Store(0)
			}
		}
	}
	h.covers.end(rec, s.h, s.h.releaseRecorded(), counts)
	h.releaseAfterRecord()
	if r != driver.Success && h.used && !e.recorded.Load() {
		e.disown(h)
	}
	return check(op, r)
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

// recordedIn notes that e was recorded in a capture.
func (e *Event) recordedIn(c *capture, h *handle) {
	if e.opts.External {
		c.keep(h) // it is a node
	} else {
		h.captured.Store(c.id)
	}
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
