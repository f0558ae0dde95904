package native

import (
	"github.com/purecuda/cuda/internal/refs"
)

// leave ends a call.
func (s *Stream) leave() {
	if s.gate.Leave() {
		s.release()
	}
}

// enter counts a call on s: the slow way in, which waits for halts to end and, in a capture,
// for its turn. On an error the caller is not in s; else it calls exit.
func (s *Stream) enter() (*Capture, error) {
	_, k, err := s.admit(s.gate.Enter(), false)
	return k, err
}

// admit goes on for a call that has entered and found the state w. It returns the state
// without a flag, or the capture that the call is part of.
func (s *Stream) admit(w refs.Word, record bool) (refs.Word, *Capture, error) {
	for !w.Clear() {
		switch {
		case w.Closed():
			s.leave()
			return w, nil, closedError(s.describe())
		case w.Halted():
			s.leave()
			s.gate.Wait()
		case w.Full():
			s.leave()
			s.renumber()
		case s.work == nil:
			s.leave()
			if err := s.open(); err != nil {
				return w, nil, err
			}
		default:
			if k := s.capture.Load(); k != nil && k.lock() {
				return w, k, nil
			}
			s.leave()
			if s.kind == kindDefault && s.Dev.captures.blocking.Load() > 0 {
				return w, nil, &Refusal{Err: ErrCapturing, Detail: "a stream that synchronises with " + s.String() + " is being captured"}
			}
		}
		if record {
			w = s.gate.EnterRecord()
		} else {
			w = s.gate.Enter()
		}
	}
	return w, nil, nil
}

// exit ends a call that enter has let in.
func (s *Stream) exit(k *Capture) {
	if k != nil {
		k.mu.Unlock()
	}
	s.leave()
}

// enterUncaptured counts a call that nobody's capture of s can take, and refuses it there.
// Unless it fails, leave ends the call.
func (s *Stream) enterUncaptured() error {
	k, err := s.enter()
	if err != nil {
		return err
	}
	if k != nil || s.isCaptured() {
		s.exit(k)
		return &Refusal{Err: ErrCapturing, Detail: s.String() + ": do it before the capture or after it"}
	}
	return nil
}

// open completes the default stream of a device that nobody has opened yet.
func (s *Stream) open() error {
	if s.Dev.defaultOpen.Load() {
		return nil
	}
	t, err := s.Dev.Open()
	if err != nil {
		return err
	}
	s.gate.Halt()
	defer s.gate.Resume()
	s.Dev.captures.mu.Lock()
	defer s.Dev.captures.mu.Unlock()
	if s.work == nil {
		s.quiet, s.work = t.QuietBound, t.Bound
		s.Dev.defaultOpen.Store(true)
		if s.Dev.captures.blocking.Load() == 0 {
			s.gate.Restore()
		}
	}
	return nil
}

// renumber gives s another serial, when its numbers are used up, after 2^39 records.
func (s *Stream) renumber() {
	s.gate.Halt()
	if s.gate.Renumber() {
		s.epoch += numbers + 1
		if origin := s.origin.Load(); origin != 0 { // Handle may clear it meanwhile
			s.origin.CompareAndSwap(origin, uint64(s.Dev.Driver.places.renew()))
		}
	}
	s.resume()
}

// resume ends a halt.
func (s *Stream) resume() {
	if s.gate.Resume() {
		s.release()
	}
}

// enterHeld counts a call on a stream that the caller holds, be it closed; false if it is
// being captured. The caller is in no call.
func (s *Stream) enterHeld() bool {
	for {
		w := s.gate.Enter()
		switch {
		case w.Diverted():
			s.leave()
			return false
		case w.Halted():
			s.leave()
			s.gate.Wait()
		case w.Full():
			s.leave()
			s.renumber()
		case s.isCaptured():
			s.leave()
			return false
		default:
			return true
		}
	}
}

// tryEnterHeld is enterHeld for a caller that may be in a call: it waits for nobody.
func (s *Stream) tryEnterHeld() bool {
	if w := s.gate.Enter(); w.Diverted() || w.Halted() || w.Full() || s.isCaptured() {
		s.leave()
		return false
	}
	return true
}
