package cuda

import (
	"context"
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// Stream is a queue of work on one device: what is enqueued on it runs in that
// order, and two streams are unordered unless an event or WaitStream orders
// them. Any number of goroutines may share a Stream; what they enqueue runs in
// the order in which their calls reach the driver.
//
// Streams are made by [Device.NewStream], taken over from elsewhere by
// [Device.ExternalStream], or the device's [Device.DefaultStream]. Make them
// once and reuse them: making one costs some microseconds, using one nothing.
//
// Except for Synchronize, SynchronizeContext and Close no method waits for the
// device. A stream that is being captured can be neither queried nor waited for
// on the host: that is [ErrCapturing].
type Stream struct {
	dev       *Device
	h         *handle
	id        uint64
	isDefault bool
	cleanup   runtime.Cleanup
}

// StreamOptions say how a stream is made. The zero value is the recommended one.
type StreamOptions struct {
	// Priority: 0 is the lowest, negative is higher. Outside the device's range
	// it is clamped. Waiting blocks of a higher stream start first; running ones
	// are not stopped.
	Priority int
	// SyncWithDefault makes the stream and the default stream wait for each
	// other implicitly, as CUDA's legacy streams do.
	SyncWithDefault bool
}

// NewStream creates a stream (cuStreamCreateWithPriority). A nil opts means
// the defaults. Each created stream is distinct from all others until closed.
func (d *Device) NewStream(opts *StreamOptions) (*Stream, error) {
	const op = "stream create"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if opts == nil {
		opts = &StreamOptions{}
	}
	flags := driver.StreamNonBlocking
	if opts.SyncWithDefault {
		flags = driver.StreamDefault
	}
	var native driver.Stream
	r := d.bound(func(api *driver.API) (r driver.Result) {
		native, r = api.StreamCreateWithPriority(flags, clamp32(opts.Priority))
		return r
	})
	if r != driver.Success {
		return nil, failure(op, r)
	}
	return d.wrap(native, kindStream), nil
}

// clamp32 keeps absurd priorities from wrapping around; the driver clamps
// further, to the device's range.
func clamp32(n int) int32 { return int32(max(-1<<30, min(n, 1<<30))) }

// wrap makes a Stream of a native one.
func (d *Device) wrap(native driver.Stream, k kind) *Stream {
	s := &Stream{dev: d, h: newHandle(d, k, uint64(native))}
	s.id = uint64(native)
	d.call(func(api *driver.API) driver.Result {
		id, r := api.StreamGetID(native)
		if r == driver.Success {
			s.id = id
		}
		return r
	})
	s.cleanup = runtime.AddCleanup(s, (*handle).forget, s.h)
	return s
}

// DefaultStream returns the device's legacy default stream, whose handle is 0.
// It is the current stream until another is set, see [WithStream]. Calls on it
// cost a little more than on created streams, because the driver must be told
// the device each time.
func (d *Device) DefaultStream() *Stream {
	if d == nil {
		return nil
	}
	return &d.defaultStream
}

// Device returns the stream's device.
func (s *Stream) Device() *Device {
	if s == nil {
		return nil
	}
	return s.dev
}

// Handle returns the native CUstream, 0 for a default stream. Other libraries
// can use it for as long as s is open and reachable.
func (s *Stream) Handle() driver.Stream {
	if s == nil || s.h == nil {
		return 0
	}
	return driver.Stream(s.h.native)
}

// ID returns a number that no other stream of the process has or will have, 0
// for default streams (cuStreamGetId). Drivers before CUDA 12.0 have no such
// number: there it is the handle, which the driver may give out again.
func (s *Stream) ID() uint64 { return s.Key().id }

// StreamKey identifies a stream as a map key: two Streams with equal keys are
// the same stream.
type StreamKey struct {
	device *Device
	id     uint64
}

// Key returns the stream's identity, for use as a map key.
func (s *Stream) Key() StreamKey {
	if s == nil {
		return StreamKey{}
	}
	return StreamKey{s.dev, s.id}
}

// Equal reports whether s and o are the same stream of the same device,
// whichever way each was made. Two nil streams are equal.
func (s *Stream) Equal(o *Stream) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Key() == o.Key()
}

// Priority returns the stream's priority as the driver reports it
// (cuStreamGetPriority).
func (s *Stream) Priority() (int, error) {
	const op = "stream priority"
	if err := s.acquire(op); err != nil {
		return 0, err
	}
	defer s.h.release()
	var p int32
	r := s.call(func(api *driver.API, h driver.Stream) (r driver.Result) {
		p, r = api.StreamGetPriority(h)
		return r
	})
	return int(p), check(op, r)
}

// IsCapturing reports whether the stream's work is being captured into a graph
// (cuStreamIsCapturing). A capture that an error has ended counts until it is
// ended by its owner too.
func (s *Stream) IsCapturing() (bool, error) {
	const op = "stream capture status"
	if err := s.acquire(op); err != nil {
		return false, err
	}
	defer s.h.release()
	var status driver.CaptureStatus
	r := s.call(func(api *driver.API, h driver.Stream) (r driver.Result) {
		status, r = api.StreamIsCapturing(h)
		return r
	})
	return status != driver.CaptureNone, check(op, r)
}

// RecordEvent records e on s and returns it, see [Event.Record]. If e is nil it
// makes a new event with default options.
func (s *Stream) RecordEvent(e *Event) (*Event, error) {
	if e == nil {
		e = NewEvent(nil)
	}
	if err := e.Record(s); err != nil {
		return nil, err
	}
	return e, nil
}

// WaitEvent makes the work enqueued on s from now on wait for e; see [Event.Wait].
func (s *Stream) WaitEvent(e *Event) error { return e.Wait(s) }

// Query reports whether all work enqueued on s so far is done (cuStreamQuery).
func (s *Stream) Query() (bool, error) {
	const op = "stream query"
	if err := s.acquire(op); err != nil {
		return false, err
	}
	done, err := s.query(op)
	s.h.release()
	return done, err
}

// query is Query while the stream is held.
func (s *Stream) query(op string) (bool, error) {
	if s.dev.driver.captures.active.Load() != 0 {
		return s.queryAmid(op)
	}
	return s.answered(op, s.h.queryStream())
}

// queryAmid is query while streams may be capturing.
func (s *Stream) queryAmid(op string) (bool, error) {
	beginning := &s.dev.driver.captures.beginning
	beginning.RLock() // so that it does not become part of a capture now
	defer beginning.RUnlock()
	if err := s.notCapturing(op, false); err != nil {
		return false, err
	}
	return s.answered(op, s.h.queryStreamRelaxed())
}

// answered says what the driver's answer means.
func (s *Stream) answered(op string, r driver.Result) (bool, error) {
	switch r {
	case driver.Success:
		return true, nil
	case driver.ErrorNotReady:
		return false, nil
	}
	return false, check(op, r)
}

// Synchronize waits until all work enqueued on s before the call is done. It
// blocks the calling goroutine and no thread, see [Stream.SynchronizeContext].
func (s *Stream) Synchronize() error { return s.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until all work enqueued on s before the call is
// done, or ctx is. Unless s is idle (cuStreamQuery) it records an event on it and
// waits for that, as [Event.SynchronizeContext] does. When ctx ends first the
// error matches ctx.Err(), and the work on the device goes on. If s is closed, the
// wait ends with [ErrClosed]; if the device fails, with [ErrDeviceLost]. Afterwards
// what kernels have printed is flushed to C's standard output.
func (s *Stream) SynchronizeContext(ctx context.Context) error {
	const op = "stream synchronize"
	p, err := s.begin(op)
	if p.event == nil {
		return err
	}
	defer p.end()
	if err := p.wait(ctx, op); err != nil {
		return err
	}
	return check(op, p.conclude())
}

// Done returns a channel that delivers one value, nil or an error, when all work
// enqueued on s before the call is done, for use in a select; see [Event.Done].
func (s *Stream) Done() <-chan error { return done(s, "stream wait") }

// Close destroys the stream (cuStreamDestroy). It does not wait: work in flight
// runs on to its end, and waits of other goroutines end with [ErrClosed]. Afterwards every
// method that can fail fails with [ErrClosed]; closing again is nil. Closing an external
// stream only forgets it; closing a default stream does nothing.
func (s *Stream) Close() error {
	if s == nil || s.h == nil || s.isDefault {
		return nil
	}
	s.cleanup.Stop()
	return check("stream close", s.h.close())
}

// String names the stream by device and handle.
func (s *Stream) String() string {
	switch {
	case s == nil || s.h == nil:
		return "cuda.Stream(nil)"
	case s.isDefault:
		return fmt.Sprintf("cuda.Stream(device %d, default)", s.dev.index)
	case s.h.closed():
		return fmt.Sprintf("cuda.Stream(device %d, closed)", s.dev.index)
	}
	return fmt.Sprintf("cuda.Stream(device %d, %#x)", s.dev.index, s.h.native)
}

// acquire takes a reference to the native stream, which the caller releases.
func (s *Stream) acquire(op string) error {
	if s != nil && !s.isDefault && s.h != nil && s.h.acquire() {
		runtime.KeepAlive(s)
		return nil
	}
	return s.acquireOrSay(op)
}

func (s *Stream) acquireOrSay(op string) error {
	if s == nil || s.h == nil {
		return invalid(op, "the stream is nil")
	}
	ok := s.h.acquire()
	runtime.KeepAlive(s) // until then a collected s would close h
	if !ok {
		return closed(op, s.h.String())
	}
	// Work on a default stream would end the capture of a stream that synchronises
	// with it.
	if s.isDefault && s.dev.driver.captures.active.Load() != 0 && s.h.capturing() {
		s.h.release()
		return &Error{Op: op, Err: ErrCapturing, Detail: "a stream that synchronises with " + s.String() + " is being captured"}
	}
	return nil
}

// call calls f with the native stream, see [handle.onStream].
func (s *Stream) call(f func(api *driver.API, h driver.Stream) driver.Result) driver.Result {
	return s.h.onStream(f)
}
