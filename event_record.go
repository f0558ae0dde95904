package cuda

import (
	"errors"
	"runtime"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// errUsed: a question about the native event, from before, may still be on its way to the
// driver, so that it must not become part of a capture, which the question would end.
var errUsed = errors.New("a used event in a capture")

// record is Record while the stream is held, which it lets go of. The event needs no
// reference: it is not destroyed while its coverage counts a record under way.
func (e *Event) record(op string, s *Stream) error {
	h := e.h.Load()
	if h == nil && e.opts.pooled() {
		return e.recordNew(op, s, nil)
	}
	if h == nil || h.dev != s.dev || h.shared != nil {
		var err error
		if h, err = e.recordable(op, h, s); err != nil {
			s.h.release()
			return err
		}
	}
	rec := h.covers.begin(s.h)
	runtime.KeepAlive(e) // until then a collected e would close h
	if h.closed() || h.replaced.Load() || h.waits.Load() != 0 && !h.covers.void.Load() {
		h.covers.abandon(rec)
		h.releaseAfterRecord()
		return e.recordNew(op, s, h)
	}
	err := e.recordOn(op, h, s, rec, true)
	if err == errUsed {
		return e.recordNew(op, s, h)
	}
	return err
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

// recordNew gives e a new native event, which it records before anybody can see it. e
// had old, or none. If somebody on the host waits for the last record, they keep old.
// Who records meanwhile finds old waited for, and does not record that but a new one too:
// else their record, which may be behind work that this one is not behind, would go with
// old. It lets go of s.
func (e *Event) recordNew(op string, s *Stream, old *handle) error {
	if old != nil {
		old.waits.Add(1)
		defer func() {
			if old.lastWaited() {
				old.closeUnneeded()
			}
		}()
	}
	e.mu.Lock()
	isClosed, changed := e.closed, e.h.Load() != old || old != nil && old.covers.void.Load()
	e.mu.Unlock()
	switch {
	case isClosed:
		s.h.release()
		return closed(op, "the event")
	case changed:
		return e.record(op, s)
	}
	h, err := e.recordUnseen(op, s, s.dev.driver.captures.active.Load() == 0)
	if err == errUsed {
		h, err = e.recordUnseen(op, s, false)
	}
	if err != nil {
		return err
	}
	if e.replace(old, h) {
		return nil
	}
	// Another goroutine was faster. Which record is the last one is for the driver to
	// say, of one native event.
	h.closeUnneeded()
	return e.Record(s)
}

// replace makes h the event's own, unless that is not old any more.
func (e *Event) replace(old, h *handle) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.h.Load() != old || old != nil && old.covers.void.Load() {
		return false
	}
	if old == nil {
		e.adopt(h)
		return true
	}
	e.cleanup.Stop()
	e.adopt(h)
	e.former = append(slices.DeleteFunc(e.former, (*handle).closed), old)
	old.replaced.Store(true) // it goes with the last wait
	return true
}

// recordUnseen returns a pooled event, perhaps a used one, which it has recorded on s. It
// lets go of s, unless the error is errUsed.
func (e *Event) recordUnseen(op string, s *Stream, used bool) (*handle, error) {
	h, err := e.pooledOn(op, s.dev, used)
	if err != nil {
		s.h.release()
		return nil, err
	}
	if err := e.recordOn(op, h, s, h.covers.begin(s.h), false); err != nil {
		if err != errUsed {
			h.covers.void.Store(true) // and nobody should get it: perhaps it is its fault
		}
		h.closeUnneeded()
		return nil, err
	}
	return h, nil
}

// recordOn records h, which is e's, so that others have seen it, or will be. It lets go of
// h and, unless the error is errUsed, of s.
func (e *Event) recordOn(op string, h *handle, s *Stream, rec recording, seen bool) error {
	captures := &s.dev.driver.captures
	if e.opts.External || captures.active.Load() != 0 {
		return e.recordAmid(op, h, s, rec, seen)
	}
	was := h.captured.Load()
	r := s.h.record(driver.Event(h.native))
	return h.endRecord(op, s, rec, r, e.noteRecord(h, s, r, was))
}

// recordAmid is recordOn where a capture may matter.
func (e *Event) recordAmid(op string, h *handle, s *Stream, rec recording, seen bool) error {
	unlock := func() {}
	if captures := &s.dev.driver.captures; captures.active.Load() != 0 {
		captures.beginning.Lock()
		unlock = captures.beginning.Unlock
	}
	native, c, was := driver.Event(h.native), s.capture(), h.captured.Load()
	var r driver.Result
	switch {
	case c != nil && h.pooled && !h.covers.void.Load() && (h.used || seen && was != c.id):
		unlock()
		h.covers.abandon(rec)
		h.releaseAfterRecord()
		return errUsed
	case c != nil && e.opts.Interprocess && !e.opts.External: // the driver would end it
		unlock()
		_ = h.endRecord(op, s, rec, driver.Success, false)
		return &Error{Op: op, Err: ErrCapturing, Detail: "an interprocess event cannot be recorded in a capture"}
	case e.opts.External:
		r = s.recordExternal(native)
	default:
		r = s.dev.driver.captures.alone(func() driver.Result { return s.h.record(native) })
	}
	counts := e.noteRecord(h, s, r, was)
	unlock()
	return h.endRecord(op, s, rec, r, counts)
}

// noteRecord notes what the driver was asked to record. It reports whether the record is
// a place in the stream's work: in a capture nothing is reached until the graph is
// launched. was is the capture that the event was in before; another goroutine may have
// recorded it in one meanwhile.
func (e *Event) noteRecord(h *handle, s *Stream, r driver.Result, was uint64) (counts bool) {
	if r != driver.Success {
		return false
	}
	if !e.recorded.Load() {
		e.recorded.Store(true)
	}
	if s.dev.driver.captures.active.Load() != 0 || h.captured.Load() != 0 {
		if c := s.capture(); c != nil {
			e.recordedIn(c, h)
			return false
		}
		h.captured.CompareAndSwap(was, 0)
	}
	return true
}

func (h *handle) endRecord(op string, s *Stream, rec recording, r driver.Result, counts bool) error {
	h.covers.end(rec, s.h, s.h.releaseRecorded(), counts)
	h.releaseAfterRecord()
	return check(op, r)
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
