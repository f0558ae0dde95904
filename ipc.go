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
func (e *Event) IPCHandle() (driver.IPCEventHandle, error) { return e.ipcHandle("event ipc handle") }

func (e *Event) ipcHandle(op string) (driver.IPCEventHandle, error) {
	var none driver.IPCEventHandle
	if e == nil {
		return none, nilEvent(op)
	}
	h, err := e.acquire(op)
	if h == nil && err == nil && e.opts.Interprocess {
		h, err = e.createToExport(op)
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
	if h.shared != nil {
		return h.shared.handle(), nil
	}
	var bytes driver.IPCEventHandle
	r := h.dev.bound(func(api *driver.API) (r driver.Result) {
		bytes, r = api.IPCGetEventHandle(driver.Event(h.native))
		return r
	})
	if r != driver.Success {
		return none, failure(op, r)
	}
	h.dev.driver.sharing.give(sharedKey{EventToken, bytes}, h)
	return bytes, nil
}

// createToExport makes an event that was never recorded, and acquires it.
func (e *Event) createToExport(op string) (*handle, error) {
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
// marks this process's work for both.
//
// A handle does not say whose it is. If that process dies before the event is done,
// waits for it never end, and the driver may take the handle for that of a later
// process. [Driver.ImportEvent] notices; [Driver.FindProcess] helps to make a [Token]
// of a handle.
//
// Opening it again is cheap, and the handle of an event of this same process gives that
// event again, see [Driver.ImportEvent].
func (d *Device) OpenEvent(h driver.IPCEventHandle) (*Event, error) {
	const op = "event open"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	opened, err := d.driver.sharing.open(op, d, sharedKey{EventToken, h}, origin{})
	if err != nil {
		return nil, err
	}
	return d.adoptEvent(opened), nil
}

func (d *Device) adoptEvent(h *handle) *Event {
	e := NewEvent(&EventOptions{Interprocess: true, Device: d})
	e.adopt(h)
	return e
}

// EventFromIPCHandle is [Device.OpenEvent] for a handle that arrived as bytes,
// such as PyTorch's Event.ipc_handle() gives. A length other than 64 is an
// error that names both.
func EventFromIPCHandle(d *Device, handle []byte) (*Event, error) {
	const op = "event open"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	var h driver.IPCEventHandle
	if len(handle) != len(h) {
		return nil, invalid(op, fmt.Sprintf("an IPC event handle has %d bytes, this has %d", len(h), len(handle)))
	}
	copy(h[:], handle)
	return d.OpenEvent(h)
}
