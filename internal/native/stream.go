package native

import (
	"fmt"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
	"github.com/purecuda/cuda/internal/wait"
)

// Stream is a stream of a device: created here, adopted from elsewhere, or the default
// stream. Every call on it enters its gate, so that
//
//   - Close does not destroy it under a call: the last call to leave does;
//   - a capture can halt it, when it begins or takes the stream in; from then on the gate is
//     diverted, and every call goes by the capture (see [Capture]).
//
// The fast way through a call is to enter, see no flag, call the driver and leave.
type Stream struct {
	gate   refs.Gate
	work   *driver.API // enqueues on it
	quiet  *driver.API // asks for it
	Native driver.Stream
	Dev    *Device
	kind   streamKind
	spare  atomic.Pointer[nativeEvent] // recorded by WaitStream
	order

	capture atomic.Pointer[Capture] // that it is part of
	// holds is 1 for the open stream, and 1 for each piece of memory that is freed in its
	// order or used on it: the native stream lives until the last of them is gone.
	holds   atomic.Int64
	flushes flushes
	wait.Owner
}

// order is what is known of the order of a stream's records among those of others.
type order struct {
	origin atomic.Uint64 // the place of number 0; 0: the stream's records are no places
	joined joins
	// epoch counts, above the bits of a number, how often the numbers were used up. It is
	// changed while the stream is halted.
	epoch uint64
}

// streamKind says where a stream comes from, and so whether the library destroys it and what it waits for.
type streamKind uint8

const (
	kindCreated  streamKind = iota
	kindBlocking            // created; it and the default stream wait for each other
	kindExternal            // made elsewhere: it is not destroyed, and may be gone at any time
	kindDefault             // the legacy default stream, never destroyed
)

func (s *Stream) init(d *Device, native driver.Stream, kind streamKind) {
	s.Dev, s.Native, s.kind = d, native, kind
	if kind != kindExternal {
		p := d.Driver.places.take()
		s.origin.Store(uint64(makePlace(p.serial(), 0)))
		s.gate.Begin(p.number())
	}
	s.holds.Store(1)
	if kind == kindDefault {
		s.gate.Divert() // until the device is open
	}
}

// NewStream creates a stream (cuStreamCreateWithPriority).
func (d *Device) NewStream(priority int32, blocking bool) (*Stream, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	flags, kind := driver.StreamNonBlocking, kindCreated
	if blocking {
		flags, kind = driver.StreamDefault, kindBlocking
	}
	native, r := t.QuietBound.StreamCreateWithPriority(flags, priority)
	if r != driver.Success {
		return nil, r
	}
	d.Driver.Live.Streams.Add(1)
	return d.addStream(t, native, kind), nil
}

// AdoptStream returns a stream that was made elsewhere.
func (d *Device) AdoptStream(native driver.Stream) (*Stream, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	of, r := t.Quiet.StreamGetCtx(native)
	if r != driver.Success {
		return nil, r
	}
	if of != t.Context {
		return nil, &Refusal{Err: ErrDeviceMismatch,
			Detail: fmt.Sprintf("stream %#x belongs to another device, or to a context other than device %d's primary one", uintptr(native), d.Index)}
	}
	d.Driver.Live.ExternalStreams.Add(1)
	return d.addStream(t, native, kindExternal), nil
}

func (d *Device) addStream(t *Tables, native driver.Stream, kind streamKind) *Stream {
	s := &Stream{work: t.Work, quiet: t.Quiet}
	s.init(d, native, kind)
	d.streams.mu.Lock()
	defer d.streams.mu.Unlock()
	if d.streams.all == nil {
		d.streams.all = map[*Stream]struct{}{}
	}
	d.streams.all[s] = struct{}{}
	return s
}

// Forgotten closes a stream that was never closed and that its owner has dropped.
func (s *Stream) Forgotten() {
	if s.kind == kindExternal { // of that nothing is lost
		_ = s.Close()
		return
	}
	s.Dev.forgotten("stream", s.Close)
}

// IsDefault reports whether s is a device's default stream.
func (s *Stream) IsDefault() bool { return s.kind == kindDefault }

// Closed reports whether s has been closed.
func (s *Stream) Closed() bool { return s.gate.Closed() }

// Same reports whether s and o are the same stream, whichever way each was made.
func (s *Stream) Same(o *Stream) bool { return s == o || s.Dev == o.Dev && s.Native == o.Native }

func (s *Stream) String() string {
	switch {
	case s.kind == kindDefault:
		return fmt.Sprintf("cuda.Stream(device %d, default)", s.Dev.Index)
	case s.Closed():
		return fmt.Sprintf("cuda.Stream(device %d, closed)", s.Dev.Index)
	}
	return fmt.Sprintf("cuda.Stream(device %d, %#x)", s.Dev.Index, uintptr(s.Native))
}

// place returns the place that s has come to.
func (s *Stream) place() place { return s.placeOf(s.gate.Number()) }

// placeOf returns the place of a record with a number.
func (s *Stream) placeOf(number uint64) place { return place(s.origin.Load() | number) }

// hold keeps the native stream after Close, until release. The caller is in a call, or
// holds it already.
func (s *Stream) hold() { s.holds.Add(1) }

// release gives back what hold took, or what the open stream had. The last destroys.
func (s *Stream) release() {
	if s.holds.Add(-1) == 0 {
		s.Dev.Driver.cleanupFailed("stream", s.destroy())
	}
}

func (s *Stream) destroy() driver.Result {
	d := s.Dev.Driver
	d.places.give(s.place())
	s.Dev.streams.remove(s)
	if s.kind == kindExternal {
		d.Live.ExternalStreams.Add(-1)
		return driver.Success
	}
	if e := s.spare.Swap(nil); e != nil {
		s.Dev.events.put(e)
	}
	d.Live.Streams.Add(-1)
	return s.quiet.StreamDestroy(s.Native)
}

// Close destroys the stream when no call is under way, no capture goes on, and no memory
// depends on it. Waits for it end. If nothing is left to wait for, the error is the driver's.
func (s *Stream) Close() error {
	if s.kind == kindDefault {
		return nil
	}
	first, drained := s.gate.Close()
	if first {
		s.End(&s.Dev.Poller)
	}
	if drained && s.holds.Add(-1) == 0 {
		return failed(ignoreExit(s.destroy()))
	}
	return nil
}

// describe names s in errors.
func (s *Stream) describe() string {
	return fmt.Sprintf("the stream at %#x of device %d", uintptr(s.Native), s.Dev.Index)
}

// Query reports whether all work on s is done.
func (s *Stream) Query() (bool, error) {
	if w := s.gate.Enter(); !w.Clear() || s.isCaptured() {
		s.leave()
		if err := s.enterUncaptured(); err != nil {
			return false, err
		}
	}
	r := s.quiet.StreamQuery(s.Native)
	s.leave()
	return answer(r)
}

// answer is what the driver's answer to a question means.
func answer(r driver.Result) (done bool, err error) {
	switch r {
	case driver.Success:
		return true, nil
	case driver.ErrorNotReady:
		return false, nil
	}
	return false, r
}

// Handle returns the native stream for others. They may capture it: what s waits for then is
// part of a graph, and what waits for s too. So from now on its records are no places, and
// closed memory is given back by asking whether its uses are done.
func (s *Stream) Handle() driver.Stream {
	if s.kind != kindDefault {
		s.origin.Store(0)
	}
	return s.Native
}

// follow is called when s has waited for a record that is no place: others may be capturing
// that, and now s with it.
func (s *Stream) follow() {
	if s.kind == kindDefault || s.kind == kindExternal || s.origin.Load() == 0 {
		return
	}
	if status, r := s.work.StreamIsCapturing(s.Native); r == driver.Success && status != driver.CaptureNone {
		s.origin.Store(0)
	}
}

// isCaptured reports whether others may be capturing s.
func (s *Stream) isCaptured() bool {
	if s.origin.Load() != 0 && s.kind != kindExternal {
		return false
	}
	status, r := s.work.StreamIsCapturing(s.Native)
	return r == driver.Success && status != driver.CaptureNone
}

// ID returns a number that no other stream of the process has or will have. Drivers before
// CUDA 12.0 have none: there it is the handle.
func (s *Stream) ID() uint64 {
	if id, r := s.quiet.StreamGetID(s.Native); r == driver.Success {
		return id
	}
	return uint64(s.Native)
}

// Outside refuses a wait on the host in place of one of s, for an event of d: it puts
// nothing into a graph.
func (s *Stream) Outside(d *Device) error {
	switch {
	case d == nil:
		return errEventClosed
	case s.Dev.Driver != d.Driver:
		return errTwoDrivers
	}
	if err := s.enterUncaptured(); err != nil {
		return err
	}
	s.leave()
	return nil
}

// Ask has f ask for a property of s.
func (s *Stream) Ask(f func(api *driver.API, native driver.Stream) driver.Result) error {
	k, err := s.enter()
	if err != nil {
		return err
	}
	defer s.exit(k)
	return failed(f(s.quiet, s.Native))
}
