package native

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Capture is a stream capture that goes on. The driver does not synchronise what belongs to
// one, so its streams are touched by one goroutine at a time:
//
//   - A stream that begins a capture or joins one is halted for that, so that no call is
//     under way on it. Then its gate is diverted, and each later call takes the mutex.
//   - The capture ends with the mutex held, and restores the gates. A call that has waited
//     for the mutex finds that, and starts again.
//   - A record goes to a native event that nobody has had, and what others may ask about it
//     is refused: see [Mark].
//
// Calls on other streams know nothing of it. Its mode is relaxed: the other modes look at
// threads, which goroutines do not have, and what they forbid the library refuses by itself.
type Capture struct {
	mu      sync.Mutex
	origin  *Stream
	ended   bool
	streams []*Stream
	events  []*nativeEvent // recorded in it; not destroyed before it has ended
	held    *Held
}

// lock takes the turn of a call on a stream of the capture; false if the capture has ended.
func (k *Capture) lock() bool {
	k.mu.Lock()
	if k.ended {
		k.mu.Unlock()
		return false
	}
	return true
}

// over reports whether the capture has ended.
func (k *Capture) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// BeginCapture begins a capture of s.
func (s *Stream) BeginCapture() (*Capture, error) {
	if s.kind == kindDefault {
		return nil, &Refusal{Err: ErrInvalid, Detail: "a default stream cannot be captured: create one"}
	}
	if s.Closed() {
		return nil, closedError(s.describe())
	}
	k := &Capture{origin: s, held: newHeld()}
	err := k.takeIn(s, func() error { return failed(s.work.StreamBeginCapture(s.Native, driver.CaptureModeRelaxed)) })
	if err != nil {
		return nil, err
	}
	return k, nil
}

// takeIn makes s part of the capture by what do does. The caller is in no call.
func (k *Capture) takeIn(s *Stream, do func() error) error {
	c := &s.Dev.captures
	c.mu.Lock() // before s is halted: the driver may hold up recordAll
	c.streams.Add(1)
	c.mu.Unlock()
	taken := false
	defer func() {
		if !taken {
			c.streams.Add(-1)
		}
	}()
	s.gate.Halt()
	defer s.resume()
	if s.kind == kindBlocking { // work on the default stream would end the capture
		s.Dev.Default.gate.Halt()
		defer s.Dev.Default.resume()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	in := s.capture.Load()
	switch {
	case k.ended:
		return errCaptureOver
	case s.Closed():
		return closedError(s.describe())
	case in != nil && in != k:
		return &Refusal{Err: ErrCapturing, Detail: "one capture of a stream at a time"}
	}
	if err := do(); err != nil || in == k {
		return err
	}
	taken = true
	s.capture.Store(k)
	k.streams = append(k.streams, s)
	if s.kind == kindBlocking {
		c.mu.Lock()
		c.blocking.Add(1)
		s.Dev.Default.gate.Divert()
		c.mu.Unlock()
	}
	s.gate.Divert()
	return nil
}

var errCaptureOver = &Refusal{Err: ErrCaptured, Detail: "record it outside the capture before it is used there"}

// End ends the capture and returns its graph.
func (k *Capture) End() (*Graph, error) {
	k.mu.Lock()
	s := k.origin
	native, r := s.work.StreamEndCapture(s.Native)
	k.ended = true
	k.events = nil
	for _, s := range k.streams {
		if s.gate.Restore() {
			defer s.release()
		}
		s.capture.Store(nil) // not earlier: then another capture can divert the gate
		s.Dev.captures.streams.Add(-1)
	}
	k.mu.Unlock()
	for _, s := range k.streams {
		if s.kind == kindBlocking {
			s.Dev.endBlockingCapture()
		}
		s.Dev.frees.ask(s, math.MaxInt) // for memory that was closed meanwhile
	}
	if r != driver.Success {
		k.held.release()
		return nil, captureError(r)
	}
	return newGraph(s.Dev, native, k.held), nil
}

func captureError(r driver.Result) error {
	switch r {
	case driver.ErrorStreamCaptureInvalidated:
		return &Refusal{Code: r, Detail: "something that a capture forbids was done to its streams or events, not by this package: waiting for them, asking for them, or waiting for an event recorded outside"}
	case driver.ErrorStreamCaptureUnjoined:
		return &Refusal{Code: r, Detail: "call WaitStream for it before the captured function returns"}
	}
	return r
}

// join makes s wait for m, which was recorded in the capture: it becomes part of it. The
// caller is in no call.
func (k *Capture) join(s *Stream, m *Mark) error {
	wait := func() error { return failed(s.work.StreamWaitEvent(s.Native, m.event, 0)) }
	switch in := s.capture.Load(); {
	case s.Dev.Driver != m.dev.Driver:
		return errTwoDrivers
	case s.kind == kindDefault && !k.over():
		return &Refusal{Err: ErrCapturing,
			Detail: s.String() + " would have to wait for a part of a capture, and a default stream can be in none: take a created stream"}
	case in == k:
		_, in, err := s.admit(s.gate.Enter(), false)
		if err != nil {
			return err
		}
		defer s.exit(in)
		if in != k {
			return errCaptureOver
		}
		return wait()
	case in != nil:
		return s.outside("the event was recorded")
	}
	return k.takeIn(s, wait)
}

// outside refuses a wait of s, which is being captured, for what is no part of the capture:
// the driver would end it.
func (s *Stream) outside(what string) error {
	return &Refusal{Err: ErrCapturing,
		Detail: fmt.Sprintf("%v is being captured and %s outside the capture; if each launch of the graph shall wait for it, take an event with EventOptions.External", s, what)}
}

// endBlockingCapture lets work on the default stream go on when no blocking stream is being
// captured any more.
func (d *Device) endBlockingCapture() {
	d.captures.mu.Lock()
	defer d.captures.mu.Unlock()
	if d.captures.blocking.Add(-1) == 0 && d.Default.work != nil { // else it waits to be opened
		d.Default.gate.Restore()
	}
}

// keepEvent keeps an event that is a node of the graph. The caller has the turn.
func (k *Capture) keepEvent(m *Mark) { k.held.keepEvent(m) }

// captures are those that go on with streams of a device.
type captures struct {
	// mu is held to announce a stream, and to divert and restore the default stream; for
	// reading while an event is recorded behind all work of the device.
	mu       sync.RWMutex
	streams  atomic.Int64 // that are part of one, or about to be
	blocking atomic.Int64 // that are part of one and synchronise with the default stream
}
