package native

import (
	"fmt"
	"runtime"
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
	holds atomic.Int64
	// unflushed: kernels and frees were enqueued since the last flush, see Pending.
	unflushed atomic.Bool
	wait.Owner
}

// order is what is known of the order of a stream's records among those of others.
type order struct {
	origin atomic.Uint64 // the place of number 0; 0: the stream's records are no places
	joined joins
}

// streamKind says where a stream comes from, and so who destroys it and what it waits for.
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

// place says where s stands now.
func (s *Stream) place() place { return s.placeOf(s.gate.Number()) }

// placeOf returns the place of a record with a number.
func (s *Stream) placeOf(number uint64) place { return place(s.origin.Load() | number) }

// leave ends a call.
func (s *Stream) leave() {
	if s.gate.Leave() {
		s.release()
	}
}

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

// describe names s in errors.
func (s *Stream) describe() string {
	return fmt.Sprintf("the stream at %#x of device %d", uintptr(s.Native), s.Dev.Index)
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
	s.Dev.captures.begin.Lock()
	defer s.Dev.captures.begin.Unlock()
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
	if s.gate.Renumber() && s.origin.Load() != 0 {
		s.origin.Store(uint64(s.Dev.Driver.places.renew()))
	}
	s.resume()
}

// resume ends a halt.
func (s *Stream) resume() {
	if s.gate.Resume() {
		s.release()
	}
}

// Query reports whether all work on s is done.
func (s *Stream) Query() (bool, error) {
	if w := s.gate.Enter(); !w.Clear() {
		return s.querySlow(w)
	}
	r := s.quiet.StreamQuery(s.Native)
	s.leave()
	return answer(r)
}

func (s *Stream) querySlow(w refs.Word) (bool, error) {
	_, k, err := s.admit(w, false)
	if err != nil {
		return false, err
	}
	defer s.exit(k)
	if k != nil {
		return false, s.capturing()
	}
	return answer(s.quiet.StreamQuery(s.Native))
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

// capturing refuses what a capture of s would not survive, or would make wrong.
func (s *Stream) capturing() error {
	return &Refusal{Err: ErrCapturing, Detail: s.String() + ": do it before the capture or after it"}
}

// Handle returns the native stream for others, who may capture it: what s waits for then is
// part of a graph, and what waits for s too. So from now on its records are no places, and
// closed memory is given back by asking whether its uses are done.
func (s *Stream) Handle() driver.Stream {
	if s.kind != kindDefault {
		s.origin.Store(0)
	}
	return s.Native
}

// isCaptured reports whether others may be capturing s.
func (s *Stream) isCaptured() bool {
	if s.origin.Load() != 0 && s.kind != kindExternal {
		return false
	}
	status, r := s.work.StreamIsCapturing(s.Native)
	return r == driver.Success && status != driver.CaptureNone
}

// flushLater has the next wait for s end with a flush.
func (s *Stream) flushLater() {
	if !s.unflushed.Load() {
		s.unflushed.Store(true)
	}
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
	k, err := s.enter()
	if err != nil {
		return err
	}
	defer s.exit(k)
	if k != nil || s.isCaptured() {
		return s.capturing()
	}
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

// WaitStream makes the work enqueued on s from now on wait for what other was given. The
// event is other's own. Several goroutines may do it at once: all records of it are on the
// same stream, so a wait that finds a later one waits for what it would have waited for a
// moment later. Once the wait is enqueued the event may be recorded again.
func (s *Stream) WaitStream(other *Stream) error {
	w, v := s.gate.Enter(), other.gate.EnterRecord()
	e := other.spare.Load()
	if !(w | v).Clear() || e == nil || s.Dev != other.Dev || s.Native == other.Native {
		s.leave()
		other.leave()
		return s.waitStreamSlow(other)
	}
	api := s.work
	if other.Native == 0 {
		api = other.work
	}
	var r driver.Result
	if api.Fused != nil {
		r = api.Fused.RecordWait(e.event, other.Native, s.Native)
	} else if r = other.work.EventRecord(e.event, other.Native); r == driver.Success {
		r = s.work.StreamWaitEvent(s.Native, e.event, 0)
	}
	if r == driver.Success {
		s.joined.note(other.placeOf(v.Number()))
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
	w, v := s.gate.Enter(), other.gate.EnterRecord()
	if !(w | v).Clear() {
		s.leave()
		other.leave()
		if w.Diverted() || v.Diverted() {
			return s.waitCaptured(other)
		}
		return s.waitStreamSlow(other)
	}
	defer s.leave()
	defer other.leave()
	e := other.spare.Load()
	if e == nil { // it was being captured until now
		if err := other.makeSpare(); err != nil {
			return err
		}
		e = other.spare.Load()
	}
	r := other.work.EventRecord(e.event, other.Native)
	if r == driver.Success {
		r = s.work.StreamWaitEvent(s.Native, e.event, 0)
	}
	if r == driver.Success {
		s.joined.note(other.placeOf(v.Number()))
	}
	runtime.KeepAlive(e)
	return failed(r)
}

// waitCaptured is WaitStream where a stream is part of a capture: by an event of its own.
func (s *Stream) waitCaptured(other *Stream) error {
	if k := s.capture.Load(); k != nil && other.capture.Load() != k {
		return s.outside(other.String() + " is")
	}
	var e Event
	if err := e.Record(other); err != nil {
		return err
	}
	defer e.Close()
	return e.Wait(s)
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
