package cuda

import (
	"errors"
	"strings"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
	"github.com/purecuda/cuda/internal/wait"
)

// Rules that a call can break and for which the driver has no code of its own,
// or the same code as for something else. They are in [Error.Err]; test for
// them with errors.Is.
var (
	// ErrClosed means that the stream, event, buffer, module or graph has been closed.
	ErrClosed = native.ErrClosed
	// ErrNotTimed means that an elapsed time was asked of an event made without timing.
	ErrNotTimed = native.ErrNotTimed
	// ErrNotRecorded means that an elapsed time was asked of an event that no stream has
	// recorded.
	ErrNotRecorded = native.ErrNotRecorded
	// ErrNotCompleted means that an elapsed time was asked of an event that has not completed.
	ErrNotCompleted = native.ErrNotCompleted
	// ErrDeviceMismatch means that two objects that must be of one device are of two.
	ErrDeviceMismatch = native.ErrDeviceMismatch
	// ErrNotInterprocess means that the event was made without EventOptions.Interprocess, or
	// that the memory is not of [Alloc], so that other processes cannot share it.
	ErrNotInterprocess = native.ErrNoInterprocess
	// ErrPeerGone means that the other process is gone. Work that it had not finished will
	// never complete.
	ErrPeerGone = native.ErrPeerGone
	// ErrUnreachable means that a token comes from another machine, from before this one was
	// started, or from another PID namespace.
	ErrUnreachable = errors.New("not of a process that can be reached from here")
	// ErrCaptured means that the event was last recorded in a capture, and can be used only
	// there until it is recorded outside.
	ErrCaptured = native.ErrCaptured
	// ErrCapturing means that the call would wait for a stream that is being captured, or
	// cannot be part of a capture.
	ErrCapturing = native.ErrCapturing
	// ErrNoDevice means that the driver was found, but no device.
	ErrNoDevice = native.ErrNoDevice
	// ErrInvalid means that an argument is nil, out of range or of the wrong size.
	ErrInvalid = native.ErrInvalid
	// ErrDeviceLost means that an earlier failure on the device, a kernel's fault for
	// example, has left it unusable for this process; only a new process helps.
	// Errors whose Code is sticky match it.
	ErrDeviceLost = errors.New("the device is lost to this process")
)

// Error is what every failing call of this package returns: what was tried,
// and why it failed. It matches, by errors.Is, both the driver's code and the
// broken rule, where there is one:
//
//	errors.Is(err, driver.ErrorOutOfMemory)
//	errors.Is(err, cuda.ErrClosed)
type Error struct {
	Op     string        // what was tried, such as "event record"
	Code   driver.Result // the driver's answer; Success if it was not asked
	Err    error         // the rule broken or the error met, or nil
	Detail string        // the particulars, and what to do
}

func (e *Error) Error() string {
	parts := []string{"cuda: " + e.Op}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	if e.Code != driver.Success {
		parts = append(parts, e.Code.Error())
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the driver's code and the broken rule.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Code != driver.Success {
		all = append(all, e.Code)
	}
	if e.Err != nil {
		all = append(all, e.Err)
	}
	return all
}

// Is makes sticky codes match [ErrDeviceLost].
func (e *Error) Is(target error) bool {
	return target == ErrDeviceLost && e.Code.Sticky()
}

// failed makes the error of an operation of what the internals return: a driver's result, a
// broken rule, or the end of a wait. It is nil for nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op}
	switch err := err.(type) {
	case driver.Result:
		e.Code = err
	case *native.Refusal:
		e.Code, e.Err, e.Detail = err.Code, err.Err, err.Detail
	case *Error: // of a call on behalf of this one
		*e = *err
		e.Op = op
		return e
	default:
		e.Err = err
	}
	switch {
	case err == wait.ErrEnded:
		e.Err = ErrClosed
	case e.Code == driver.ErrorCapturedEvent && e.Err == nil:
		e.Err = ErrCaptured
	case e.Code.Sticky():
		const help = "an earlier failure on the device has ended its work; only a new process can use it again"
		if e.Detail != "" {
			e.Detail += ": "
		}
		e.Detail += help
	}
	return e
}

// check is failed for a driver's result.
func check(op string, r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	return failed(op, r)
}

func invalid(op, detail string) error { return &Error{Op: op, Err: ErrInvalid, Detail: detail} }

func isUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func closed(op, what string) error { return &Error{Op: op, Err: ErrClosed, Detail: what} }

func twoDrivers(op string) error {
	return &Error{Op: op, Err: ErrDeviceMismatch, Detail: "they come from two different drivers"}
}
