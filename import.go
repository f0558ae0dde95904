package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// ImportOptions say how something of another process is opened. The zero value is
// the recommended one.
type ImportOptions struct {
	// Closed, unless nil, is called once when this import is over, whatever becomes of
	// others of the same: it was closed, no call and no graph uses it any more and, of
	// memory, the work is done that this package has enqueued with it or was told of by
	// [Buffer.RecordStream]; for that Close waits. It is the time to tell the exporter,
	// who can free it when all are over. Streams may still wait for an event then, as
	// they do after any [Event.Close]: if that matters, synchronize them before.
	//
	// It is called on any goroutine, must not block and must not call this package.
	Closed func()
}

// ImportEvent opens an event of another process (cuIpcOpenEventHandle). Before the
// driver sees the token it is checked: that it is of an event, of a process of this
// machine that lives, and on a device that this process sees, whichever number that
// has here. The error says what is wrong, and matches [ErrInvalid], [ErrPeerGone],
// [ErrNoDevice] or, for a token of another machine, of before a restart or of another
// PID namespace, [ErrUnreachable]. A nil opts means the defaults.
//
// The exporter is watched. If it dies before the event is done, waits on the host and
// questions end with [ErrPeerGone] within some hundredths of a second. A stream that
// was made to wait for the event ([Event.Wait]) is beyond help: it never runs again,
// so that waits for it or for all of the device do not end; only closing it remains. So
// wait on the host first, by [Event.WaitAlive], or order the processes by a counter
// that the survivor can set (package ipc has that ready). Once the exporter is dead the
// event cannot be recorded, and what this process has recorded before counts as the
// exporter's: until it is done, waits for it fail too.
//
// Importing it again is cheap: the driver opens it once. The token of an event of this
// same process gives that event again, as an Event of its own: each is closed by
// itself, and the native event goes with the last.
func (d *Driver) ImportEvent(t Token, opts *ImportOptions) (*Event, error) {
	const op = "event import"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	dev, from, err := d.checkToken(op, t, EventToken)
	if err != nil {
		return nil, err
	}
	var exporter *exporter
	if !from.own {
		if exporter, err = d.watchExporter(op, t.Process); err != nil {
			return nil, err
		}
	}
	h, err := d.sharing.open(op, dev, sharedKey{EventToken, t.Handle}, from)
	if err != nil {
		if exporter != nil {
			exporter.release(d)
		}
		return nil, err
	}
	h.shared.exporter = exporter
	h.whenClosed(opts)
	return dev.adoptEvent(h), nil
}

// ImportBuffer opens device memory of another process as elements of type T
// (cuIpcOpenMemHandle). The token is checked as by [Driver.ImportEvent], and that what
// it speaks of lies within the allocation that the driver has opened. A nil opts means
// the defaults.
//
// The memory stays usable if the exporter dies; what is in it then is another
// question. Nothing orders the uses of the two processes but events, or package ipc.
// Closing the last Buffer of the allocation closes it (cuIpcCloseMemHandle), which
// waits until the device is idle, as for memory of [Alloc]. The exporter should free it
// only after that.
//
// The token of memory of this same process gives that memory again, as a Buffer of its
// own: each is closed by itself, and the memory is freed with the last.
func ImportBuffer[T Element](d *Driver, t Token, opts *ImportOptions) (*Buffer[T], error) {
	const op = "buffer import"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	dev, from, err := d.checkToken(op, t, MemoryToken)
	if err != nil {
		return nil, err
	}
	size := uint64(unsafe.Sizeof(*new(T)))
	if t.Size == 0 || t.Size%size != 0 {
		return nil, invalid(op, fmt.Sprintf("%d bytes are not a number of elements of %d bytes", t.Size, size))
	}
	h, extent, err := dev.openMemory(op, t.Handle, from)
	if err != nil {
		return nil, err
	}
	if t.Offset > extent || t.Size > extent-t.Offset {
		h.close()
		return nil, invalid(op, fmt.Sprintf("the token speaks of %d bytes at %d, but the allocation has %d", t.Size, t.Offset, extent))
	}
	if t.Size > math.MaxInt {
		h.close()
		return nil, tooLarge(op, t.Size)
	}
	if (h.native+t.Offset)%size != 0 {
		h.close()
		return nil, invalid(op, fmt.Sprintf("byte %d of the allocation is no place for elements of %d bytes", t.Offset, size))
	}
	h.whenClosed(opts)
	b := newBuffer[T](h, int(t.Size/size))
	b.at += driver.DevicePtr(t.Offset)
	return b, nil
}

// checkToken checks all that can be checked without opening anything, and returns the
// device and whose the token is.
func (d *Driver) checkToken(op string, t Token, want TokenKind) (*Device, origin, error) {
	if t.Kind != want {
		return nil, origin{}, invalid(op, fmt.Sprintf("the token is of %v, and not of %v", t.Kind, want))
	}
	self, err := d.FindProcess(0)
	if err != nil {
		return nil, origin{}, named(err, op)
	}
	dev, missing := d.deviceOf(op, t.Device)
	var reason string
	switch {
	case t.Process.Boot == self.Boot && t.Process.Namespace == self.Namespace:
	case t.Process.Boot != self.Boot && missing != nil:
		reason = fmt.Sprintf("the token comes from another machine (boot id %v, here %v)", t.Process.Boot, self.Boot)
	case t.Process.Boot != self.Boot:
		reason = fmt.Sprintf("the token is from before this machine was restarted, or from another one (boot id %v, now %v)", t.Process.Boot, self.Boot)
	default:
		reason = fmt.Sprintf("the token comes from an isolated PID namespace (%d, here %d), whose processes could not be seen to die; let both run in the same", t.Process.Namespace, self.Namespace)
	}
	switch {
	case reason != "":
		return nil, origin{}, &Error{Op: op, Err: ErrUnreachable, Detail: reason}
	case missing != nil:
		return nil, origin{}, missing
	case t.Process == self:
		return dev, origin{own: true}, nil
	}
	p, err := d.FindProcess(t.Process.PID)
	if err != nil && !errors.Is(err, ErrPeerGone) {
		return nil, origin{}, named(err, op)
	}
	if err != nil || p != t.Process {
		return nil, origin{}, &Error{Op: op, Err: ErrPeerGone, Detail: fmt.Sprintf("process %d, which exported it, has ended", t.Process.PID)}
	}
	return dev, origin{process: t.Process}, nil
}

// OpenMemory opens an allocation of another process on this machine by its IPC handle
// (cuIpcOpenMemHandle), all of it, as bytes: take a part by [Buffer.Range] and other
// elements by [View]. d must be the device on which it was allocated. Nothing is known
// of the exporter; a [Token] has more. Opening it again is cheap, and the handle of
// memory of this same process gives that again, see [ImportBuffer].
func (d *Device) OpenMemory(h driver.IPCMemHandle) (*Buffer[uint8], error) {
	const op = "buffer open"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	opened, extent, err := d.openMemory(op, h, origin{})
	if err != nil {
		return nil, err
	}
	if extent > math.MaxInt {
		opened.close()
		return nil, tooLarge(op, extent)
	}
	return newBuffer[uint8](opened, int(extent)), nil
}

func tooLarge(op string, bytes uint64) error {
	return invalid(op, fmt.Sprintf("%d bytes are more than a program for a %d-bit processor can count; import a part of them by a token", bytes, bits.UintSize))
}

// openMemory opens an allocation, and asks how many bytes it has.
func (d *Device) openMemory(op string, bytes driver.IPCMemHandle, from origin) (*handle, uint64, error) {
	h, err := d.driver.sharing.open(op, d, sharedKey{MemoryToken, bytes}, from)
	if err != nil {
		return nil, 0, err
	}
	var extent uint64
	r := d.bound(func(api *driver.API) (r driver.Result) {
		_, extent, r = api.MemGetAddressRange(driver.DevicePtr(h.native))
		return r
	})
	if r != driver.Success {
		h.close()
		return nil, 0, failure(op, r)
	}
	return h, extent, nil
}

// BufferFromIPCHandle is [Device.OpenMemory] for a handle that arrived as bytes:
// CUDA's 64, or the 66 of PyTorch's storages (untyped_storage()._share_cuda_()), which
// begin with a version and a type. Memory of PyTorch's expandable segments has other
// handles, which are refused.
func BufferFromIPCHandle(d *Device, handle []byte) (*Buffer[uint8], error) {
	const op = "buffer open"
	var h driver.IPCMemHandle
	switch {
	case len(handle) == len(h):
	case len(handle) > 2 && handle[1] == 'e':
		return nil, &Error{Op: op, Err: errors.ErrUnsupported, Detail: "the handle is of a PyTorch storage in an expandable segment; run PyTorch without expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF"}
	case len(handle) == 2+len(h) && handle[1] == 'c':
		handle = handle[2:]
	default:
		return nil, invalid(op, fmt.Sprintf("an IPC memory handle has %d bytes, or %d of which the second is 'c' if it is PyTorch's; this has %d", len(h), len(h)+2, len(handle)))
	}
	copy(h[:], handle)
	return d.OpenMemory(h)
}

// isForeign reports whether the event is of another process.
func (e *Event) isForeign() bool {
	h := e.h.Load()
	return h != nil && h.shared != nil && h.shared.imported != nil
}

// WaitAlive makes what is enqueued on s from now on come after the event, as
// [Event.Wait] does, but never by a wait on the device that another process's death
// would make endless: for an event of another process it waits on the host, until the
// event is done, or its process is gone ([ErrPeerGone]), or ctx is. For an event of
// this process it is Wait. s cannot be capturing ([ErrCapturing]): a wait on the host
// puts nothing into a graph.
func (e *Event) WaitAlive(ctx context.Context, s *Stream) error {
	const op = "stream wait event"
	if e == nil || !e.isForeign() {
		return e.Wait(s)
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	if e.Device().driver != s.dev.driver {
		return twoDrivers(op)
	}
	if err := s.notCapturing(op, true); err != nil {
		return err
	}
	p, err := e.begin(op)
	if p.event == nil {
		return err
	}
	defer p.end()
	return p.wait(ctx, op)
}
