package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/internal/native"
	"github.com/purecuda/cuda/internal/wait"
)

// Waitable is what the host can wait for: an [*Event], a [*Stream] or a [*Device].
type Waitable interface {
	Synchronize() error
	SynchronizeContext(ctx context.Context) error
	Done() <-chan error

	begin() (native.Pending, error)
	on() *native.Device // nil: it is of none yet
}

func (e *Event) begin() (native.Pending, error) {
	if e == nil {
		return native.Pending{}, nilEvent("")
	}
	return e.native.BeginWait()
}

func (s *Stream) begin() (native.Pending, error) {
	if !s.usable() {
		return native.Pending{}, nilStream("")
	}
	return s.native.BeginWait()
}

func (d *Device) begin() (native.Pending, error) {
	if err := d.usable(""); err != nil {
		return native.Pending{}, err
	}
	return d.native.BeginWait()
}

func (e *Event) on() *native.Device  { return e.native.Device() }
func (s *Stream) on() *native.Device { return s.native.Dev }
func (d *Device) on() *native.Device { return d.native }

// Synchronize waits until the work that the event marks is done. It blocks the
// calling goroutine and no thread, see [Event.SynchronizeContext], and returns at
// once if the event was never recorded.
func (e *Event) Synchronize() error { return e.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until the work that the event marks is done, or ctx
// has ended. It asks the driver in a loop for 0.3 ms (cuEventQuery) and holds no
// thread afterwards, so any number of goroutines can wait. When ctx ends first the
// error matches ctx.Err(), and the work on the device goes on. If the event is
// closed, the wait ends with [ErrClosed]; if the device fails, with [ErrDeviceLost].
//
// What kernels print is flushed by waits for streams and devices, not by this one.
//
// The wait is for the record that it finds, see [Event.Record]. An event made with
// EventOptions.Blocking is not asked in a loop: the wait sleeps from the start.
func (e *Event) SynchronizeContext(ctx context.Context) error {
	const op = "event synchronize"
	if e != nil && e.native.TryFast() {
		return raced(op, e.on())
	}
	return synchronize(ctx, op, e)
}

// Done returns a channel that delivers one value, nil or an error, when the
// work that the event marks is done, for use in a select:
//
//	select {
//	case err := <-e.Done():
//	case <-ctx.Done():
//	}
//
// It takes no goroutine, and a caller that no longer wants the value may drop the
// channel. For an event that was never recorded the value is there at
// once. Closing the event delivers [ErrClosed].
func (e *Event) Done() <-chan error { return done("event wait", e) }

// Synchronize waits until all work enqueued on s before the call is done. It
// blocks the calling goroutine and no thread, see [Stream.SynchronizeContext].
func (s *Stream) Synchronize() error { return s.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until all work enqueued on s before the call is
// done, or ctx has ended. Unless s is idle (cuStreamQuery) it records an event on it and
// waits for that, as [Event.SynchronizeContext] does. When ctx ends first the
// error matches ctx.Err(), and the work on the device goes on. If s is closed, the
// wait ends with [ErrClosed]; if the device fails, with [ErrDeviceLost]. Afterwards
// what kernels have printed is flushed to C's standard output.
func (s *Stream) SynchronizeContext(ctx context.Context) error {
	return synchronize(ctx, "stream synchronize", s)
}

// Done returns a channel that delivers one value, nil or an error, when all work
// enqueued on s before the call is done, for use in a select; see [Event.Done].
func (s *Stream) Done() <-chan error { return done("stream wait", s) }

// Synchronize waits until all work of all streams of the device, enqueued before
// the call by any code of the process, is done. Other devices are not waited for.
// It blocks the calling goroutine and no thread, see [Device.SynchronizeContext].
func (d *Device) Synchronize() error { return d.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until all work of all streams of the device, enqueued
// before the call, is done, or ctx is (cuCtxRecordEvent, and then as
// [Event.SynchronizeContext]). When ctx ends first the error matches ctx.Err(), and
// the work on the device goes on. Afterwards what kernels have printed is flushed to
// C's standard output, and what the memory pool has over its threshold is given back.
// During a capture on the device it fails with [ErrCapturing].
//
// Drivers before CUDA 12.5 have no such event. There it records one on each stream that
// the library knows and on the default stream, and waits for all of them, but not for
// what a stream that is closed still does. Streams of
// other libraries are included if they synchronise with the default stream, or are
// wrapped by [Device.ExternalStream].
func (d *Device) SynchronizeContext(ctx context.Context) error {
	return synchronize(ctx, "device synchronize", d)
}

// Done returns a channel that delivers one value, nil or an error, when all work
// of all streams of the device, enqueued before the call, is done, for use in a
// select; see [Event.Done].
func (d *Device) Done() <-chan error { return done("device wait", d) }

// synchronize waits for w.
func synchronize(ctx context.Context, op string, w Waitable) error {
	p, err := w.begin()
	if err != nil {
		return failed(op, err)
	}
	if !p.Over() {
		defer p.End()
		if ctx == nil {
			return failed(op, native.ErrNilContext)
		}
		err = p.Wait(ctx)
		runtime.KeepAlive(w) // else it may be closed
		if err != nil {
			return waitFailed(ctx, op, err)
		}
	}
	return raced(op, w.on())
}

// waitFailed is failed for a wait with a context.
func waitFailed(ctx context.Context, op string, err error) error {
	if errors.Is(err, wait.ErrCancelled) {
		return &Error{Op: op, Err: ctx.Err(), Detail: "the work on the device goes on"}
	}
	return failed(op, err)
}

// done returns a channel that delivers the end of a wait for w.
func done(op string, w Waitable) <-chan error {
	done := make(chan error, 1)
	p, err := w.begin()
	if err != nil || p.Over() {
		done <- failed(op, err)
		return done
	}
	p.Notify(func(err error) {
		runtime.KeepAlive(w)
		done <- failed(op, err)
	})
	return done
}

// WaitAll waits until all of work is done, or ctx has ended. What must be done is settled
// when it is called: the last records of the events, and all that the streams and
// devices have been given by then. It holds no thread while it waits. The first
// failure ends it, and the error says whose it was. With no arguments it returns nil.
func WaitAll(ctx context.Context, work ...Waitable) error {
	_, err := waitForSeveral(ctx, "wait for all", work, wait.All)
	return err
}

// WaitAny waits until one of work is done, or ctx has ended, and returns its index. What
// must be done is settled when it is called, as by [WaitAll]. It holds no thread
// while it waits. If the wait for one of them fails first, its index and the error
// are returned; -1 if ctx ended first.
func WaitAny(ctx context.Context, work ...Waitable) (int, error) {
	const op = "wait for any"
	if len(work) == 0 {
		return -1, invalid(op, "there is nothing to wait for")
	}
	return waitForSeveral(ctx, op, work, wait.Any)
}

// waitForSeveral begins a wait for each of work, and waits for them by how. What cannot be
// waited for is over at once.
func waitForSeveral(ctx context.Context, op string, work []Waitable, how func(context.Context, []wait.Pending) (int, error)) (int, error) {
	begun := make([]native.Pending, len(work))
	several := make([]wait.Pending, len(work))
	for i, w := range work {
		var err error
		if w == nil {
			err = invalid(op, "it is nil")
		} else {
			begun[i], err = w.begin()
		}
		if err != nil {
			several[i] = wait.Pending{Poller: new(wait.Poller), Point: over{err}}
			continue
		}
		defer begun[i].End()
		several[i] = begun[i].Several()
	}
	if ctx == nil {
		return -1, failed(op, native.ErrNilContext)
	}
	i, err := how(ctx, several)
	runtime.KeepAlive(work)
	if err != nil && i >= 0 {
		op = fmt.Sprintf("%s, number %d of %d", op, i, len(work))
	}
	return i, waitFailed(ctx, op, err)
}

// over is a point of which a wait could not begin.
type over struct{ err error }

func (o over) Poll() (bool, error)        { return false, o.err }
func (over) Place() (any, uint64, uint64) { return nil, 0, 0 }

// WaitAlive makes what is enqueued on s from now on come after the event, as
// [Event.Wait] does. But for an event of another process it blocks the host, until the
// event is done, its process is gone ([ErrPeerGone]) or ctx has ended, as a wait on the
// device would never end if that process died. For an event of this process it is Wait. s cannot be capturing ([ErrCapturing]): a wait on the host
// puts nothing into a graph.
func (e *Event) WaitAlive(ctx context.Context, s *Stream) error {
	const op = "stream wait event"
	if e == nil || !s.usable() {
		return nilEventOrStream(op, e)
	}
	if _, foreign := e.native.Exporter(); !foreign {
		return e.Wait(s)
	}
	err := s.native.Outside(e.native.Device())
	runtime.KeepAlive(s)
	if err != nil {
		return failed(op, err)
	}
	return synchronize(ctx, op, e)
}
