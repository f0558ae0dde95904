package cuda

import (
	"context"
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// IPCHandle returns the 64 bytes by which another process on this machine can
// open the event (cuIpcGetEventHandle): with [Device.OpenEvent], or PyTorch's
// Event.from_ipc_handle. The event must have been made with
// EventOptions.Interprocess ([ErrNotInterprocess]).
//
// An event that was never recorded is made first, on EventOptions.Device or, if
// that is nil, on the current device of context.Background(). The event must
// stay open for as long as another process uses it, and this process alive: a
// stream that waits for a dead process's pending event waits for ever.
func (e *Event) IPCHandle() (driver.IPCEventHandle, error) {
	const op = "event ipc handle"
	var none driver.IPCEventHandle
	if e == nil {
		return none, nilEvent(op)
	}
	h, err := e.acquire(op)
	if h == nil && err == nil && e.opts.Interprocess {
		h, err = e.export(op)
	}
	if err != nil {
		return none, err
	}
	if h != nil {
		defer h.release()
	}
	if !e.opts.Interprocess {
		return none, &Error{Op: op, Err: ErrNotInterprocess, Detail: "make it with EventOptions{Interprocess: true}"}
	}
	var bytes driver.IPCEventHandle
	r := h.dev.bound(func() (r driver.Result) {
		bytes, r = h.dev.driver.api.IPCGetEventHandle(driver.Event(h.native))
		return r
	})
	return bytes, check(op, r)
}

// export makes an event that was never recorded, and acquires it.
func (e *Event) export(op string) (*handle, error) {
	d := e.opts.Device
	if d == nil {
		var err error
		if d, err = CurrentDevice(context.Background()); err != nil {
			return nil, &Error{Op: op, Err: err, Detail: "record the event first, or set EventOptions.Device"}
		}
	}
	if _, err := e.create(op, d); err != nil {
		return nil, err
	}
	return e.acquire(op)
}

// OpenEvent opens an event of another process on this machine by its IPC handle
// (cuIpcOpenEventHandle). d must be the device on which the event was made.
// The opened event has no timing; it may be recorded here as well, and then
// marks this process's work for both. The handle of an event of this same
// process is refused by the driver: use the event itself.
func (d *Device) OpenEvent(h driver.IPCEventHandle) (*Event, error) {
	const op = "event open"
	var native driver.Event
	r := d.bound(func() (r driver.Result) {
		native, r = d.driver.api.IPCOpenEventHandle(h)
		return r
	})
	switch r {
	case driver.Success:
	case driver.ErrorInvalidContext:
		return nil, &Error{Op: op, Code: r, Detail: "the handle may be of an event of this same process, which the driver does not open"}
	case driver.ErrorMapFailed:
		return nil, &Error{Op: op, Code: r, Detail: fmt.Sprintf("the handle is not of a living interprocess event on device %d of this machine, or the processes are in isolated namespaces", d.index)}
	default:
		return nil, failure(op, r)
	}
	e := NewEvent(&EventOptions{Interprocess: true, Device: d})
	e.adopt(newHandle(d, kindEvent, uint64(native)))
	return e, nil
}

// EventFromIPCHandle is [Device.OpenEvent] for a handle that arrived as bytes,
// such as PyTorch's Event.ipc_handle() gives. A length other than 64 is an
// error that names both.
func EventFromIPCHandle(d *Device, handle []byte) (*Event, error) {
	const op = "event open"
	if d == nil {
		return nil, invalid(op, "the device is nil")
	}
	var h driver.IPCEventHandle
	if len(handle) != len(h) {
		return nil, invalid(op, fmt.Sprintf("an IPC event handle has %d bytes, this has %d", len(h), len(handle)))
	}
	copy(h[:], handle)
	return d.OpenEvent(h)
}
