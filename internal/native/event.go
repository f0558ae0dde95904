package native

import (
	"runtime"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
	"github.com/purecuda/cuda/internal/wait"
)

// Event is a point in a stream's work. It has a current [Mark], which Record moves where it
// can and replaces where it must. The zero value, with Options as wanted, was never recorded.
//
// Nothing counts the calls that use an event: the garbage collector destroys native events,
// when no call can reach them any more. What a call must know instead is whether its mark
// was still the event's when the driver had answered, and each one looks.
type Event struct {
	Options EventOptions
	mark    atomic.Pointer[Mark]
	first   Mark // so that most events need no second allocation
	claimed atomic.Bool
	wait.Owner
}

// EventOptions say how the native event is made.
type EventOptions struct {
	Timing, Blocking, Interprocess, External bool
	Device                                   *Device // that it is for; nil: any
}

func (o *EventOptions) flags() (flags uint32) {
	if !o.Timing {
		flags |= driver.EventDisableTiming
	}
	if o.Blocking {
		flags |= driver.EventBlockingSync
	}
	if o.Interprocess {
		flags |= driver.EventInterprocess
	}
	return flags
}

// Check reports whether the options contradict each other.
func (o *EventOptions) Check() error {
	if o.Interprocess && o.Timing {
		return &Refusal{Err: ErrInvalid, Detail: "an interprocess event cannot have timing: the driver shares the mark, not the clock"}
	}
	return nil
}

var errEventClosed = closedError("the event")

// Device returns the device of the native event, nil if there is none.
func (e *Event) Device() *Device {
	if m := e.mark.Load(); m != nil {
		return m.dev
	}
	return nil
}

// Peek returns the device and the native event for a message, nil if there is none.
func (e *Event) Peek() (*Device, driver.Event) {
	if m := e.mark.Load(); m != nil {
		return m.dev, m.event
	}
	return nil, 0
}

// Closed reports whether the event has been closed.
func (e *Event) Closed() bool { return e.mark.Load() == closedMark }

// Recorded reports whether the event has been recorded here.
func (e *Event) Recorded() bool {
	m := e.mark.Load()
	return m != nil && m.state.Load()&unrecorded == 0
}

// Record marks the point that s has reached.
func (e *Event) Record(s *Stream) error {
	w := s.gate.EnterRecord()
	m := e.mark.Load()
	if !w.Clear() || m == nil || m.on != s || m.state.Load() != 0 {
		return e.recordSlow(s, w)
	}
	r := s.work.EventRecord(m.event, s.Native)
	if r != driver.Success || m.state.Load()&frozen != 0 {
		return e.recordAgain(s, w, r)
	}
	m.setPlace(s, w)
	s.leave()
	return nil
}

// recordAgain goes on where the driver refuses, or the mark was being replaced.
func (e *Event) recordAgain(s *Stream, w refs.Word, r driver.Result) error {
	if r != driver.Success {
		s.leave()
		return r
	}
	return e.recordSlow(s, w)
}

// recordSlow records a new mark and makes it the event's. It leaves s.
func (e *Event) recordSlow(s *Stream, w refs.Word) error {
	w, k, err := s.admit(w, true)
	if err != nil {
		return err
	}
	defer s.exit(k)
	if d := e.Options.Device; d != nil && d != s.Dev {
		return mismatch(d, s.Dev)
	}
	for {
		old := e.mark.Load()
		if old == nil && (e.Options.Interprocess || e.Options.External) {
			if old, err = e.create(s.Dev); err != nil {
				return err
			}
		}
		switch {
		case old == closedMark:
			return errEventClosed
		case old != nil && old.dev != s.Dev:
			return mismatch(old.dev, s.Dev)
		case old != nil && old.state.Load()&(shared|inGraph) == shared && (k == nil || e.Options.Interprocess || e.Options.External):
			return e.recordShared(old, s, k)
		}
		m, err := e.newMark(s, k)
		if err != nil {
			return err
		}
		if old != nil {
			if was := old.state.Or(frozen); k == nil && was&(shared|inGraph|frozen) == shared {
				old.state.And(^uint64(frozen)) // its handle has just been given out
				m.retire(s)
				continue
			}
		}
		if r := s.work.EventRecord(m.event, s.Native); r != driver.Success {
			m.n.inUse.Store(false) // and it is used no more: it may be its fault
			if old != nil {
				old.state.Or(refused)
			}
			return r
		}
		m.setPlace(s, w)
		if e.mark.CompareAndSwap(old, m) {
			if old == nil {
				s.Dev.Driver.Live.Events.Add(1)
			} else {
				old.retire(s)
			}
			return nil
		}
		// Another goroutine was faster, or has closed the event. Which record is the last one
		// is for the driver to say, so this one must come after the other's.
		m.retire(s)
	}
}

// recordShared records a mark that others have too, in place. In a capture an external
// event becomes a node.
func (e *Event) recordShared(m *Mark, s *Stream, k *Capture) error {
	if !m.acquire() {
		return errEventClosed
	}
	defer m.release()
	switch {
	case m.share.orphaned():
		return &Refusal{Err: ErrPeerGone, Detail: "the process that exported the event is gone, so that nobody could rely on the record"}
	case k != nil && !e.Options.External:
		return &Refusal{Err: ErrCapturing, Detail: "an interprocess event cannot be recorded in a capture"}
	}
	var r driver.Result
	if inside := k != nil || e.Options.External && s.isCaptured(); inside {
		r = s.work.EventRecordWithFlags(m.event, s.Native, driver.EventRecordExternal)
	} else { // where the driver refuses the flag
		r = s.work.EventRecord(m.event, s.Native)
	}
	if r != driver.Success {
		return r
	}
	if k != nil {
		k.keepEvent(m)
	}
	m.state.And(^uint64(unrecorded))
	return nil
}

// Wait makes the work enqueued on s from now on wait for the event.
func (e *Event) Wait(s *Stream) error {
	w := s.gate.Enter()
	m := e.mark.Load()
	if !w.Clear() || m == nil || m.flagged() || m.dev.Driver != s.Dev.Driver {
		s.leave()
		return e.waitSlow(s)
	}
	p := place(m.first.Load())
	r := s.work.StreamWaitEvent(s.Native, m.event, 0)
	if r != driver.Success || e.mark.Load() != m || m.flagged() {
		s.leave()
		return e.waitAgain(s, r)
	}
	if s.joined.note(p); p.serial() == 0 {
		s.follow()
	}
	s.leave()
	return nil
}

func (e *Event) waitAgain(s *Stream, r driver.Result) error {
	if r != driver.Success {
		return eventError(r)
	}
	return e.waitSlow(s)
}

// waitSlow is Wait where something is special. The caller is not in s. It notes no place:
// others may have recorded the mark.
func (e *Event) waitSlow(s *Stream) error {
	for {
		m := e.mark.Load()
		if m != nil && m.state.Load()&inGraph != 0 {
			return m.capture.join(s, m)
		}
		k, err := s.enter()
		if err != nil {
			return err
		}
		m, done, err := e.waitIn(s, k)
		s.exit(k)
		if done || err != nil || e.mark.Load() == m {
			return err
		}
	}
}

// waitIn is waitSlow while the caller is in s, and in a capture of it unless k is nil. m is
// the mark that was waited for; done: there was nothing to wait for.
func (e *Event) waitIn(s *Stream, k *Capture) (m *Mark, done bool, err error) {
	m = e.mark.Load()
	if m == nil && k != nil && e.Options.External { // what counts are the records before each launch
		d := s.Dev
		if e.Options.Device != nil {
			d = e.Options.Device
		}
		if m, err = e.create(d); err != nil {
			return nil, true, err
		}
	}
	switch {
	case m == nil:
		return nil, true, e.Options.Check()
	case m == closedMark:
		return nil, true, errEventClosed
	case m.dev.Driver != s.Dev.Driver:
		return nil, true, errTwoDrivers
	case m.state.Load()&inGraph != 0: // since the caller has looked
		return nil, false, nil
	case k != nil && !e.Options.External:
		if m.state.Load()&unrecorded != 0 && !e.Options.Interprocess {
			return nil, true, nil
		}
		how := "the event was recorded"
		if e.Options.Interprocess {
			how = "the event may have been recorded"
		}
		return nil, true, s.outside(how)
	case !m.acquire():
		return nil, true, errEventClosed
	}
	defer m.release()
	if m.share.orphaned() { // s would never run again, unless it is done
		done, err := m.Poll()
		if !done && err == nil { // it is being recorded
			err = errOrphaned
		}
		return m, true, err
	}
	if k == nil && !(e.Options.External && s.isCaptured()) {
		r := s.work.StreamWaitEvent(s.Native, m.event, 0)
		if k == nil && place(m.first.Load()).serial() == 0 {
			s.follow()
		}
		return m, false, eventError(r)
	}
	r := s.work.StreamWaitEvent(s.Native, m.event, driver.EventWaitExternal)
	if r == driver.Success && k != nil {
		k.keepEvent(m)
	}
	return m, true, failed(r)
}

// Query reports whether the work that the event marks is done.
func (e *Event) Query() (bool, error) {
	m := e.mark.Load()
	if m == nil || m.flagged() {
		return e.querySlow()
	}
	r := m.dev.mustOpen().Quiet.EventQuery(m.event)
	if e.mark.Load() != m || r != driver.Success && r != driver.ErrorNotReady {
		return e.querySlow()
	}
	runtime.KeepAlive(m)
	return r == driver.Success, nil
}

func (e *Event) querySlow() (bool, error) {
	for {
		m := e.mark.Load()
		switch {
		case m == nil:
			err := e.Options.Check()
			return err == nil, err
		case m == closedMark:
			return false, errEventClosed
		case m.state.Load()&inGraph != 0:
			return false, m.inCapture()
		}
		done, err := m.Poll()
		if e.mark.Load() == m {
			return done, err
		}
	}
}

// Handle returns the native event, 0 if there is none. Others can record it from now on, so
// that it is not replaced any more, except in captures.
func (e *Event) Handle() driver.Event {
	for b := (refs.Backoff{}); ; b.Wait() { // until a Record that replaces the mark is over
		m := e.mark.Load()
		if m == nil || m == closedMark {
			return 0
		}
		m.state.Or(shared)
		m.dev.Poller.Moved(m)
		if m.state.Load()&(frozen|refused) != frozen {
			return m.event
		}
	}
}

// Close gives the event up. Waits on the host for it end.
func (e *Event) Close() {
	m := e.mark.Swap(closedMark)
	if m == nil || m == closedMark {
		return
	}
	e.End(&m.dev.Poller)
	m.dev.Driver.Live.Events.Add(-1)
	m.retire(nil)
	switch {
	case m.share != nil:
		if _, last := m.share.Close(); last {
			m.dev.Driver.cleanupFailed("event", m.share.destroy())
		}
	case e.Options.Interprocess:
		m.dev.Driver.sharing.withdraw(m.n)
	}
}
