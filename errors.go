package cuda

import (
	"errors"
	"strings"

	"github.com/purecuda/cuda/driver"
)

// Rules that a call can break and for which the driver has no code of its own,
// or the same code as for something else. They stand in [Error.Err]; test for
// them with errors.Is.
var (
	// ErrClosed: the stream, event, buffer, module or graph has been closed.
	ErrClosed = errors.New("already closed")
	// ErrNotTimed: an elapsed time was asked of an event made without timing.
	ErrNotTimed = errors.New("the event was made without timing")
	// ErrNotRecorded: an elapsed time was asked of an event that no stream has recorded.
	ErrNotRecorded = errors.New("the event has not been recorded")
	// ErrNotCompleted: an elapsed time was asked of an event that has not completed.
	ErrNotCompleted = errors.New("the event has not completed")
	// ErrDeviceMismatch: two things that must be of one device are of two.
	ErrDeviceMismatch = errors.New("not of the same device")
	// ErrNotInterprocess: an event made without EventOptions.Interprocess, or memory
	// that is not of [Alloc], was to be shared with other processes.
	ErrNotInterprocess = errors.New("not made for use between processes")
	// ErrPeerGone: the process at the other end has died, or has left without a word.
	// What it had not finished will never be.
	ErrPeerGone = errors.New("the other process is gone")
	// ErrUnreachable: a token comes from another machine, from before this one was
	// started, or from another PID namespace.
	ErrUnreachable = errors.New("not of a process that can be reached from here")
	// ErrCaptured: the event was last recorded in a capture and says nothing outside it.
	ErrCaptured = errors.New("the event belongs to a stream capture")
	// ErrCapturing: what was asked would wait for a stream that is being captured
	// into a graph, or cannot be captured itself.
	ErrCapturing = errors.New("not possible during a stream capture")
	// ErrNoDevice: the driver is there, but no device is.
	ErrNoDevice = errors.New("no CUDA device is there")
	// ErrInvalid: an argument is nil, out of range or of the wrong size.
	ErrInvalid = errors.New("invalid argument")
	// ErrDeviceLost: an earlier failure on the device, a kernel's fault for
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

// check turns a driver's answer into an error.
func check(op string, r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	return failure(op, r)
}

// failure is apart from check so that check is inlined into the hot calls.
func failure(op string, r driver.Result) error {
	e := &Error{Op: op, Code: r}
	switch {
	case r == driver.ErrorCapturedEvent:
		e.Err = ErrCaptured
	case r.Sticky():
		e.Detail = "an earlier failure on the device has ended its work; only a new process can use it again"
	}
	return e
}

// checkEvent is check for a question about an event or a wait for it. Once a
// capture has ended, the driver answers INVALID_VALUE about the events recorded
// in it; no other value in these calls can be invalid.
func checkEvent(op string, r driver.Result) error {
	if r == driver.ErrorInvalidValue {
		return &Error{Op: op, Code: r, Err: ErrCaptured, Detail: "record it outside the capture before it is used there"}
	}
	return check(op, r)
}

func invalid(op, detail string) error { return &Error{Op: op, Err: ErrInvalid, Detail: detail} }

func isUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func closed(op, what string) error { return &Error{Op: op, Err: ErrClosed, Detail: what} }
