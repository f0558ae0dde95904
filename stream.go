package cuda

import (
	"runtime"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Stream is a queue of work on one device: what is enqueued on it runs in that
// order, and two streams are unordered unless an event or WaitStream orders
// them. Any number of goroutines may share a Stream; what they enqueue runs in
// the order in which their calls reach the driver.
//
// Streams are made by [Device.NewStream], taken over from elsewhere by
// [Device.ExternalStream], or the device's [Device.DefaultStream]. Make them
// once and reuse them: making one takes some microseconds.
//
// Except for Synchronize and SynchronizeContext no method waits for the device. But
// the driver blocks a call that enqueues when the stream's queue is full, after some
// thousand operations; then calls on other goroutines that use this stream may be held
// up too, and no others of this package, except that the driver also holds up
// [Device.NewStream].
//
// A stream that is being captured can be neither queried nor waited for on the host:
// that is [ErrCapturing]. Other calls on the streams of a capture take turns.
type Stream struct {
	native  *native.Stream
	dev     *Device
	id      uint64
	cleanup runtime.Cleanup
}

// StreamOptions say how a stream is made. The zero value is the recommended one.
type StreamOptions struct {
	// Priority: 0 is the lowest, negative is higher. Outside the device's range
	// it is clamped. Thread blocks of a stream with a higher priority start first; those
	// that run are not stopped.
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
	n, err := d.native.NewStream(clamp32(opts.Priority), opts.SyncWithDefault)
	if err != nil {
		return nil, failed(op, err)
	}
	return d.newStream(n), nil
}

// clamp32 keeps absurd priorities from wrapping around; the driver clamps
// further, to the device's range.
func clamp32(n int) int32 { return int32(max(-1<<30, min(n, 1<<30))) }

func (d *Device) newStream(n *native.Stream) *Stream {
	s := &Stream{native: n, dev: d, id: n.ID()}
	s.cleanup = runtime.AddCleanup(s, (*native.Stream).Forgotten, n)
	return s
}

// ExternalStream wraps a stream made elsewhere: by a C library, PyTorch, or any
// protocol that passes handles. The wrapper never destroys it; its maker
// must keep it alive. Handles 0 and 1 give the default stream. Handle 2, the
// per-thread default stream, is refused: goroutines have no thread.
//
// The driver cannot check a handle that was never valid: a made-up one may
// crash the process. A stream that is not of the device's primary context is
// an error.
//
// A wrapper of a stream that this library made is an independent Stream: a
// capture of the one does not keep calls on the other out of the graph.
func (d *Device) ExternalStream(handle driver.Stream) (*Stream, error) {
	const op = "external stream"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	switch handle {
	case 0, driver.StreamLegacy:
		return d.DefaultStream(), nil
	case driver.StreamPerThread:
		return nil, &Error{Op: op, Code: driver.ErrorNotSupported,
			Detail: "handle 2 is the calling thread's default stream, and goroutines have no thread; create a stream instead"}
	}
	n, err := d.native.AdoptStream(handle)
	if err != nil {
		return nil, failed(op, err)
	}
	return d.newStream(n), nil
}

// DefaultStream returns the device's legacy default stream, whose handle is 0.
// It is the current stream until another is set, see [WithStream]. Calls on it
// cost a little more than on created streams, because the driver needs
// the device's context each time.
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
// can use it for as long as s is open and reachable. They may capture it: so from now on
// closed memory of [AllocAsync] that s has used is freed when s is done with it, even if
// the memory's home has waited for s. The library does not see what others record in such
// a capture: [Event.Query] and waits on the host for an event that was recorded on s
// meanwhile end the capture.
func (s *Stream) Handle() driver.Stream {
	if !s.usable() {
		return 0
	}
	return s.native.Handle()
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
	if !s.usable() {
		return 0, nilStream(op)
	}
	var p int32
	err := s.native.Ask(func(api *driver.API, native driver.Stream) (r driver.Result) {
		p, r = api.StreamGetPriority(native)
		return r
	})
	runtime.KeepAlive(s)
	return int(p), failed(op, err)
}

// IsCapturing reports whether the stream's work is being captured into a graph
// (cuStreamIsCapturing). A capture that an error has ended counts until it is
// ended by its owner too.
func (s *Stream) IsCapturing() (bool, error) {
	const op = "stream capture status"
	if !s.usable() {
		return false, nilStream(op)
	}
	var status driver.CaptureStatus
	err := s.native.Ask(func(api *driver.API, native driver.Stream) (r driver.Result) {
		status, r = api.StreamIsCapturing(native)
		return r
	})
	runtime.KeepAlive(s)
	return status != driver.CaptureNone, failed(op, err)
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
	if !s.usable() {
		return false, nilStream("stream query")
	}
	done, err := s.native.Query()
	runtime.KeepAlive(s)
	if err != nil {
		return false, failed("stream query", err)
	}
	return done, nil
}

// WaitStream makes the work enqueued on s from now on wait for all work that
// was enqueued on other before the call (cuEventRecord, cuStreamWaitEvent). It
// returns at once. The streams may be of two devices. For s itself it does
// nothing.
func (s *Stream) WaitStream(other *Stream) error {
	if !s.usable() || !other.usable() {
		return nilStream("stream wait stream")
	}
	err := s.native.WaitStream(other.native)
	runtime.KeepAlive(s)
	runtime.KeepAlive(other)
	if err != nil {
		return failed("stream wait stream", err)
	}
	return nil
}

// Close destroys the stream (cuStreamDestroy), when the last call on it has returned, no
// capture goes on, and all memory is freed that is freed in its order or that it has used.
// It does not wait: work in flight runs on to its end, and waits of
// other goroutines end with [ErrClosed]. Afterwards every
// method that can fail fails with [ErrClosed]; closing again is nil. Closing an external
// stream only forgets it; closing a default stream does nothing.
func (s *Stream) Close() error {
	if !s.usable() || s.native.IsDefault() {
		return nil
	}
	s.cleanup.Stop()
	return failed("stream close", s.native.Close())
}

// String names the stream by device and handle.
func (s *Stream) String() string {
	if !s.usable() {
		return "cuda.Stream(nil)"
	}
	return s.native.String()
}

// usable reports whether a device has made s. Methods keep s reachable until their call is
// over: a cleanup closes the native stream when s is garbage.
func (s *Stream) usable() bool { return s != nil && s.dev != nil }

func nilStream(op string) error { return invalid(op, "the stream is nil") }

// WaitValue makes the work enqueued on s from now on wait until the first element of
// word has reached value (cuStreamWaitValue32): until int32(*word-value) >= 0, so that
// a counter may wrap around. It returns at once. The wait ends when word is written: by
// another stream with [Stream.WriteValue], a kernel, and, if it is pinned host
// memory, the CPU by atomic.StoreUint32, of this process or of another one that shares
// the memory. Nothing else ends it; until then waits for s on the host do not end
// either, and calls that enqueue on s, or on a stream that shares hardware with it, may
// block when about 1,000 operations are queued.
//
// The memory is that of [Alloc], [AllocHost] or [RegisterHost], and not of [AllocAsync].
// Devices and drivers without such operations (before CUDA 11.7) answer with an error
// that matches errors.ErrUnsupported.
func (s *Stream) WaitValue(word Memory[uint32], value uint32) error {
	return s.value("stream wait value", word, value, (*native.Stream).WaitValue)
}

// WriteValue writes value to the first element of word when s has come to it
// (cuStreamWriteValue32). It returns at once. A reader that observes the value also
// observes all earlier writes of s.
func (s *Stream) WriteValue(word Memory[uint32], value uint32) error {
	return s.value("stream write value", word, value, (*native.Stream).WriteValue)
}

func (s *Stream) value(op string, word Memory[uint32], value uint32, do func(*native.Stream, *native.Memory, driver.DevicePtr, uint32) error) error {
	m, at, bytes, err := span(op, word)
	switch {
	case err != nil:
		return err
	case !s.usable():
		return nilStream(op)
	case bytes == 0:
		return invalid(op, "the memory has no elements")
	}
	err = do(s.native, m, at, value)
	runtime.KeepAlive(s)
	return failed(op, err)
}
