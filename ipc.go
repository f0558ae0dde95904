package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// OpenOptions say how something of another process is opened by its handle. The zero value
// says nothing of the exporter, and opens all of an allocation.
type OpenOptions struct {
	// Exporter is the process that has made what the handle stands for, found with
	// [Driver.FindProcess]. The exporter of an event is watched: if it dies before the event
	// is done, waits on the host and queries end with [ErrPeerGone]. If it is this process,
	// the handle gives the same event or memory again.
	Exporter driver.Process
	// Closed, unless nil, is called once when this import has ended: it was closed, no call
	// and no graph uses it any more and, of memory, the work is done that this package has
	// enqueued with it or was told of by [Buffer.RecordStream]; for that Close waits. It
	// is the time to tell the exporter, which can free it when all are over. Streams may still
	// wait for an event then: if that matters, synchronize them before.
	//
	// It is called on any goroutine, must not block and must not call this package.
	Closed func()
	// Offset and Size say which part of an allocation is opened, in bytes. A Size of 0 is
	// all that comes after Offset. Events have no parts.
	Offset, Size uint64
}

// origin says whose a handle is.
func (o *OpenOptions) origin(d *Driver) (native.Origin, error) {
	if o == nil || o.Exporter == (driver.Process{}) {
		return native.Origin{}, nil
	}
	self, err := d.FindProcess(0)
	if err != nil {
		return native.Origin{}, err
	}
	if o.Exporter == self {
		return native.Origin{Own: true}, nil
	}
	return native.Origin{Process: o.Exporter}, nil
}

func (o *OpenOptions) closed() func() {
	if o == nil {
		return nil
	}
	return o.Closed
}

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
	if e == nil {
		return driver.IPCEventHandle{}, nilEvent(op)
	}
	if e.native.Closed() {
		return driver.IPCEventHandle{}, closed(op, "the event")
	}
	if !e.native.Options.Interprocess {
		return driver.IPCEventHandle{}, &Error{Op: op, Err: ErrNotInterprocess, Detail: "make it with EventOptions{Interprocess: true}"}
	}
	if err := e.native.Options.Check(); err != nil {
		return driver.IPCEventHandle{}, failed(op, err)
	}
	d := e.native.Options.Device
	if d == nil && e.native.Device() == nil {
		current, err := CurrentDevice(context.Background())
		if err != nil {
			return driver.IPCEventHandle{}, &Error{Op: op, Err: err, Detail: "record the event first, or set EventOptions.Device"}
		}
		d = current.native
	}
	h, err := e.native.IPCHandle(d)
	return h, failed(op, err)
}

// OpenEvent opens an event of another process on this machine by its IPC handle
// (cuIpcOpenEventHandle). d must be the device on which the event was made.
// The opened event has no timing; it may be recorded here as well, and then
// marks this process's work for both.
//
// A handle does not say whose it is. If that process dies before the event is done,
// waits for it never end, and the driver may take the handle for that of a later
// process. With [OpenOptions].Exporter that is noticed.
//
// Opening it again is cheap, and the handle of an event of this same process gives that
// event again.
func (d *Device) OpenEvent(h driver.IPCEventHandle, opts *OpenOptions) (*Event, error) {
	const op = "event open"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	from, err := opts.origin(d.driver)
	if err != nil {
		return nil, failed(op, err)
	}
	e := NewEvent(&EventOptions{Interprocess: true, Device: d})
	if err := d.native.OpenEvent(&e.native, h, from, opts.closed()); err != nil {
		return nil, failed(op, err)
	}
	return e, nil
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
	return d.OpenEvent(h, nil)
}

// Exporter returns the process that exported the event; false if that is this process. It is
// zero for an event that was opened by its handle alone.
func (e *Event) Exporter() (driver.Process, bool) {
	if e == nil {
		return driver.Process{}, false
	}
	return e.native.Exporter()
}

// IPCHandle returns the 64 bytes by which another process on this machine can open
// the allocation that b is of, or is a part of (cuIpcGetMemHandle): with
// [OpenBuffer], or by other libraries. Only memory of [Alloc] has one; for
// that of [AllocAsync] the error matches [ErrNotInterprocess]. The memory must stay
// open for as long as another process uses it.
//
// Whoever knows the handle can open the memory, whichever user it is: treat it like a
// password.
func (b *Buffer[T]) IPCHandle() (driver.IPCMemHandle, error) {
	const op = "buffer ipc handle"
	m, _, _, err := span(op, b)
	if err != nil {
		return driver.IPCMemHandle{}, err
	}
	h, err := m.IPCHandle()
	return h, failed(op, err)
}

// Allocation returns which part of its allocation b is, in bytes: with that, as
// [OpenOptions].Offset and Size, another process opens the same part.
func (b *Buffer[T]) Allocation() (offset, size uint64) {
	if b == nil || b.m == nil {
		return 0, 0
	}
	return uint64(b.at - b.m.Addr), b.bytes()
}

// Exporter returns the process that exported the memory; false if that is this process. It
// is zero for memory that was opened by its handle alone.
func (b *Buffer[T]) Exporter() (driver.Process, bool) {
	if b == nil || b.m == nil {
		return driver.Process{}, false
	}
	return b.m.Exporter()
}

// OpenBuffer opens memory of another process on this machine by its IPC handle
// (cuIpcOpenMemHandle), as elements of type T: all of an allocation, or the part of it that
// the options name. d must be the device on which it was allocated. A nil opts means the
// defaults: nothing is known of the exporter, see [OpenOptions].
//
// Opening it again is cheap, and the handle of memory of this same process gives that
// again, as a Buffer of its own: each is closed by itself, and the memory is freed with the
// last. Closing the last Buffer of another process's allocation closes it
// (cuIpcCloseMemHandle), which waits until the device is idle, as for memory of [Alloc].
func OpenBuffer[T Element](d *Device, h driver.IPCMemHandle, opts *OpenOptions) (*Buffer[T], error) {
	const op = "buffer open"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	from, err := opts.origin(d.driver)
	if err != nil {
		return nil, failed(op, err)
	}
	m, err := d.native.OpenMemory(h, from)
	if err != nil {
		return nil, failed(op, err)
	}
	offset, bytes, err := opts.part(m, uint64(unsafe.Sizeof(*new(T))))
	if err != nil {
		_ = m.Close()
		return nil, failed(op, err)
	}
	m.WhenClosed(opts.closed())
	b := newBuffer[T](m, int(bytes/uint64(unsafe.Sizeof(*new(T)))))
	b.at += driver.DevicePtr(offset)
	return b, nil
}

// part returns which bytes of m the options are of, if these are whole elements of a size.
func (o *OpenOptions) part(m *native.Memory, size uint64) (offset, bytes uint64, err error) {
	extent, err := m.Extent()
	if err != nil {
		return 0, 0, err
	}
	if o != nil {
		offset, bytes = o.Offset, o.Size
	}
	if bytes == 0 && offset < extent {
		bytes = extent - offset
	}
	var wrong string
	switch {
	case offset > extent || bytes > extent-offset:
		wrong = fmt.Sprintf("the part is of %d bytes at %d, but the allocation has %d", bytes, offset, extent)
	case bytes == 0 || bytes%size != 0:
		wrong = fmt.Sprintf("%d bytes are not a number of elements of %d bytes", bytes, size)
	case bytes > math.MaxInt:
		wrong = fmt.Sprintf("%d bytes are more than a program for a %d-bit processor can count; open a part of them", bytes, bits.UintSize)
	case (uint64(m.Addr)+offset)%size != 0:
		wrong = fmt.Sprintf("byte %d of the allocation is no place for elements of %d bytes", offset, size)
	default:
		return offset, bytes, nil
	}
	return 0, 0, &native.Refusal{Err: ErrInvalid, Detail: wrong}
}

// BufferFromIPCHandle is [OpenBuffer] for the handle of all of an allocation that arrived as
// bytes: CUDA's 64, or the 66 of PyTorch's storages (untyped_storage()._share_cuda_()), which
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
	return OpenBuffer[uint8](d, h, nil)
}

// FindProcess returns the identity of the process with a number, 0 for this process
// itself. With it, the death of the process that a handle came from is noticed, see [OpenOptions]. If there is no such process
// the error matches [ErrPeerGone]; where the platform does not tell, which is
// everywhere but on linux, errors.ErrUnsupported.
func (d *Driver) FindProcess(pid int) (driver.Process, error) {
	const op = "process find"
	if err := d.usable(op); err != nil {
		return driver.Process{}, err
	}
	p, err := d.native.Processes().Find(pid)
	return p, failed(op, native.ProcessError(err))
}
