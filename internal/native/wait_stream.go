package native

import (
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// WaitStream makes the work enqueued on s from now on wait for what other was given. The
// event is other's own. Several goroutines may do it at once: all records of it are on the
// same stream, so a wait that finds a later one waits for what it would have waited for a
// moment later. Once the wait is enqueued the event may be recorded again.
func (s *Stream) WaitStream(other *Stream) error {
	w, v := s.gate.Enter(), other.gate.EnterRecord()
	e := other.spare.Load()
	if !(w | v).Clear() || e == nil || s.Same(other) || s.Dev.Driver != other.Dev.Driver {
		s.leave()
		other.leave()
		return s.waitStreamSlow(other)
	}
	api := s.work
	if other.Native == 0 {
		api = other.work
	}
	var r driver.Result
	if api.Fused != nil && s.Dev == other.Dev {
		r = api.Fused.RecordWait(e.event, other.Native, s.Native)
	} else if r = other.work.EventRecord(e.event, other.Native); r == driver.Success {
		r = s.work.StreamWaitEvent(s.Native, e.event, 0)
	}
	if r == driver.Success {
		p := other.placeOf(v.Number())
		if s.joined.note(p); p.serial() == 0 {
			s.follow()
		}
	}
	other.leave()
	s.leave()
	runtime.KeepAlive(e)
	if r != driver.Success {
		return r
	}
	return nil
}

// waitStreamSlow is WaitStream for its first call, for streams of two devices, and where a
// stream is closed, halted or being captured.
func (s *Stream) waitStreamSlow(other *Stream) error {
	if s.Dev.Driver != other.Dev.Driver {
		return errTwoDrivers
	}
	if s.Same(other) {
		k, err := s.enter()
		if err == nil {
			s.exit(k)
		}
		return err
	}
	for _, t := range [...]*Stream{s, other} { // one after the other: see refs.Gate.Halt
		k, err := t.enter()
		if err != nil {
			return err
		}
		if k == nil && t.spare.Load() == nil {
			err = t.makeSpare()
		}
		t.exit(k)
		if err != nil {
			return err
		}
	}
	if s.gate.Diverted() || other.gate.Diverted() {
		return s.waitCaptured(other)
	}
	return s.WaitStream(other)
}

// waitCaptured is WaitStream where a stream is part of a capture: by an event of its own.
func (s *Stream) waitCaptured(other *Stream) error {
	if k := s.capture.Load(); k != nil && other.capture.Load() != k {
		if k.over() {
			return s.WaitStream(other)
		}
		return s.outside(other.String() + " is")
	}
	var e Event
	if err := e.Record(other); err != nil {
		return err
	}
	defer e.Close()
	err := e.Wait(s)
	if err == errCaptureOver { // it has ended meanwhile, so the wait is outside
		return s.WaitStream(other)
	}
	return err
}

// makeSpare makes the event that others wait for. It goes back when s is destroyed.
func (s *Stream) makeSpare() error {
	e, err := s.Dev.events.take(s.Dev, s, driver.EventDisableTiming, nil)
	if err != nil {
		return err
	}
	if !s.spare.CompareAndSwap(nil, e) {
		s.Dev.events.put(e)
	}
	return nil
}
