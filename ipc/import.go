package ipc

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// ImportOptions say how something of another process is opened. The zero value is
// the recommended one.
type ImportOptions struct {
	// Closed, unless nil, is called once when this import is over, whatever becomes of
	// others of the same: see [cuda.OpenOptions].
	Closed func()
}

func (o *ImportOptions) closed() func() {
	if o == nil {
		return nil
	}
	return o.Closed
}

// ImportEvent opens an event of another process ([cuda.Device.OpenEvent]). Before the
// driver sees the token it is checked: that it is of an event, of a process of this
// machine that lives, and on a device that this process sees, whichever number that
// has here. The error says what is wrong, and matches [cuda.ErrInvalid],
// [cuda.ErrPeerGone], [cuda.ErrNoDevice] or, for a token of another machine, of before a
// restart or of another PID namespace, [cuda.ErrUnreachable]. A nil opts means the
// defaults.
//
// The exporter is watched. If it dies before the event is done, waits on the host and
// queries end with [cuda.ErrPeerGone] within some hundredths of a second. A stream that
// was made to wait for the event ([cuda.Event.Wait]) is beyond help: it never runs again,
// so that waits for it or for all of the device do not end; only closing it remains. So
// wait on the host first, by [cuda.Event.WaitAlive], or order the processes by a counter
// that the survivor can set, as rings do. Once the exporter is dead the event cannot be
// recorded, and what this process has recorded before counts as the exporter's: until it
// is done, waits for it fail too.
//
// Importing it again is cheap: the driver opens it once. The token of an event of this
// same process gives that event again, as an Event of its own: each is closed by
// itself, and the native event goes with the last.
func ImportEvent(d *cuda.Driver, t Token, opts *ImportOptions) (*cuda.Event, error) {
	const op = "event import"
	dev, err := check(op, d, t, EventToken)
	if err != nil {
		return nil, err
	}
	e, err := dev.OpenEvent(t.Handle, &cuda.OpenOptions{Exporter: t.Process, Closed: opts.closed()})
	return e, renamed(op, err)
}

// ImportBuffer opens device memory of another process as elements of type T
// ([cuda.OpenBuffer]). The token is checked as by [ImportEvent], and that what it speaks of
// lies within the allocation that the driver has opened. A nil opts means the defaults.
//
// The memory stays usable if the exporter dies; what is in it then is another
// question. Nothing orders the uses of the two processes but events, or a ring. Closing
// the last Buffer of the allocation closes it, which waits until the device is idle. The
// exporter should free it only after that.
//
// The token of memory of this same process gives that memory again, as a Buffer of its
// own: each is closed by itself, and the memory is freed with the last.
func ImportBuffer[T cuda.Element](d *cuda.Driver, t Token, opts *ImportOptions) (*cuda.Buffer[T], error) {
	const op = "buffer import"
	dev, err := check(op, d, t, MemoryToken)
	if err != nil {
		return nil, err
	}
	if t.Size == 0 { // for OpenBuffer that is all of the allocation
		return nil, invalid(op, "0 bytes are not a number of elements of %d bytes", unsafe.Sizeof(*new(T)))
	}
	b, err := cuda.OpenBuffer[T](dev, t.Handle, &cuda.OpenOptions{
		Exporter: t.Process, Closed: opts.closed(), Offset: t.Offset, Size: t.Size,
	})
	return b, renamed(op, err)
}

// check checks all of a token that can be checked without opening anything, and returns
// its device.
func check(op string, d *cuda.Driver, t Token, want TokenKind) (*cuda.Device, error) {
	if d == nil {
		return nil, invalid(op, "the driver is nil")
	}
	if t.Kind != want {
		return nil, invalid(op, "the token is of %v, and not of %v", t.Kind, want)
	}
	self, err := d.FindProcess(0)
	if err != nil {
		return nil, renamed(op, err)
	}
	dev, missing := deviceOf(op, d, t.Device)
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
		return nil, &cuda.Error{Op: op, Err: cuda.ErrUnreachable, Detail: reason}
	case missing != nil:
		return nil, missing
	case t.Process == self:
		return dev, nil
	}
	p, err := d.FindProcess(t.Process.PID)
	if err != nil && !errors.Is(err, cuda.ErrPeerGone) {
		return nil, renamed(op, err)
	}
	if err != nil || p != t.Process {
		return nil, &cuda.Error{Op: op, Err: cuda.ErrPeerGone, Detail: fmt.Sprintf("process %d, which exported it, has ended", t.Process.PID)}
	}
	return dev, nil
}

// deviceOf returns the device with an identity.
func deviceOf(op string, d *cuda.Driver, id driver.UUID) (*cuda.Device, error) {
	var visible []string
	for i := range d.DeviceCount() {
		dev, err := d.OpenDevice(i)
		if err != nil {
			return nil, renamed(op, err)
		}
		u, err := dev.UUID()
		if err != nil {
			return nil, renamed(op, err)
		}
		if u == id {
			return dev, nil
		}
		visible = append(visible, u.String())
	}
	slices.Sort(visible)
	return nil, &cuda.Error{Op: op, Err: cuda.ErrNoDevice, Detail: fmt.Sprintf("it is on device %v, which this process does not see; it sees %v (CUDA_VISIBLE_DEVICES, or the container, hides others)", id, visible)}
}
