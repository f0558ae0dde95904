package cuda

import (
	"fmt"
	"runtime"
	"time"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Event marks a point in a stream's work. Streams can wait for it, of any
// device; the host can query and wait for it; and two events with timing
// measure the time between them.
//
// The zero value is an event with default options. The native event is made
// when the Event is first recorded, on the recording stream's device, or first
// exported, or, an external one, waited for in a capture; until then the Event has
// no device and its handle is 0. An Event must not be copied. Any number of goroutines may share it.
//
// Only Synchronize, SynchronizeContext and WaitAlive block the host.
type Event struct {
	native native.Event
}

// EventOptions say how an event is made. The zero value is the cheapest: it
// orders streams and can be waited for.
type EventOptions struct {
	// Timing makes the event usable for [Event.ElapsedTime]. Recording costs more.
	Timing bool
	// Blocking makes waits on the host sleep from the start, instead of polling at first.
	// That takes less of a processor, and some tens of microseconds more. It changes
	// nothing for streams.
	Blocking bool
	// Interprocess makes the event usable for [Event.IPCHandle]. It cannot be combined with
	// Timing, and the event cannot be recorded in a capture ([ErrCapturing]).
	Interprocess bool
	// External makes records and waits inside a stream capture nodes of the graph, which
	// act at each launch, instead of edges between nodes.
	External bool
	// Device is the device that the event is for: where it is made if it is
	// exported before it was ever recorded, and whose streams alone may record it.
	// nil: the device of the first record; for an export, the current device of
	// context.Background(), which is device 0 of NVIDIA's driver.
	Device *Device
}

// NewEvent makes an event. It makes no driver call and cannot fail; opts that
// contradict each other (Interprocess with Timing) make every use of the event
// fail, the first method called says why. A nil opts means the defaults.
func NewEvent(opts *EventOptions) *Event {
	e := new(Event)
	if opts != nil {
		o := &e.native.Options
		o.Timing, o.Blocking, o.Interprocess, o.External = opts.Timing, opts.Blocking, opts.Interprocess, opts.External
		if opts.Device != nil {
			o.Device = opts.Device.native
		}
	}
	return e
}

// Device returns the event's device, or nil before it was made.
func (e *Event) Device() *Device {
	if e == nil {
		return nil
	}
	return deviceOf(e.native.Device())
}

// Handle returns the native CUevent, 0 before it was made. Other libraries can
// use it for as long as e is open and reachable. They may record it too, so each wait for it
// on the host polls the driver by itself from now on. Handle waits for a Record that is under
// way on another stream.
func (e *Event) Handle() driver.Event {
	if e == nil {
		return 0
	}
	return e.native.Handle()
}

// Record marks the point that s has reached: the event completes when all work
// enqueued on s before has (cuEventRecord). It returns at once. Recording again
// moves the mark; waits that began before, on streams and on the host, keep to the
// earlier one. (Of an event that others can record too, because it is
// interprocess or external or they have its Handle, waits on the host follow later records.)
//
// The first Record makes the event on s's device. Later only streams of that
// device may record it, others get [ErrDeviceMismatch].
func (e *Event) Record(s *Stream) error {
	if e == nil || !s.usable() {
		return nilEventOrStream("event record", e)
	}
	err := e.native.Record(s.native)
	runtime.KeepAlive(s)
	if err != nil {
		return failed("event record", err)
	}
	return nil
}

// Wait makes the work enqueued on s from now on wait for the event
// (cuStreamWaitEvent). It returns at once and never blocks the host. s may be
// of any device. Waiting for an event that was never recorded does nothing.
func (e *Event) Wait(s *Stream) error {
	if e == nil || !s.usable() {
		return nilEventOrStream("stream wait event", e)
	}
	err := e.native.Wait(s.native)
	runtime.KeepAlive(s)
	if err != nil {
		return failed("stream wait event", err)
	}
	return nil
}

// Query reports whether the work that the event marks is done (cuEventQuery).
// It is true for an event that was never recorded. It needs no stream and no
// device and may be called from any goroutine.
func (e *Event) Query() (bool, error) {
	if e == nil {
		return false, nilEvent("event query")
	}
	done, err := e.native.Query()
	if err != nil {
		return false, failed("event query", err)
	}
	return done, nil
}

// ElapsedTime returns the time between two events: from e, the start, to end
// (cuEventElapsedTime). It never waits. The resolution is about half a
// microsecond.
//
// Both events must have been made with timing ([ErrNotTimed]), recorded
// ([ErrNotRecorded]), on one device ([ErrDeviceMismatch]), and have completed
// ([ErrNotCompleted]).
func (e *Event) ElapsedTime(end *Event) (time.Duration, error) {
	if e == nil || end == nil {
		return 0, nilEvent("event elapsed time")
	}
	d, err := e.native.ElapsedTime(&end.native)
	if err != nil {
		return 0, failed("event elapsed time", err)
	}
	return d, nil
}

// Close releases the event. It does not wait. Streams that wait for the event still
// do, and waits on the host end with [ErrClosed]. Afterwards every method that can
// fail fails with [ErrClosed]; closing again is nil.
//
// A call that runs on another goroutine at the same time may fail with [ErrClosed] too, though
// its record or wait was enqueued.
//
// The native event is kept for the next Event that needs one. That of an interprocess or
// external event, one whose Handle was asked for, and one that was last recorded in a
// capture are destroyed (cuEventDestroy) when the garbage collector finds that nothing
// uses them any more. An event that [Device.OpenEvent] has opened is destroyed at once,
// with the last Event that shares it.
func (e *Event) Close() error {
	if e != nil {
		e.native.Close()
	}
	return nil
}

// String names the event by device and handle, or says "uninitialized".
func (e *Event) String() string {
	switch {
	case e == nil:
		return "cuda.Event(nil)"
	case e.native.Closed():
		return "cuda.Event(closed)"
	}
	d, native := e.native.Peek()
	if d == nil {
		return "cuda.Event(uninitialized)"
	}
	return fmt.Sprintf("cuda.Event(device %d, %#x)", d.Index, uintptr(native))
}

// deviceOf returns the Device of a native one, nil for nil.
func deviceOf(d *native.Device) *Device {
	if d == nil {
		return nil
	}
	return d.Public.(*Device)
}

func nilEvent(op string) error { return invalid(op, "the event is nil") }

func nilEventOrStream(op string, e *Event) error {
	if e == nil {
		return nilEvent(op)
	}
	return nilStream(op)
}
