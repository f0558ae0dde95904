package native

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
)

// sharing is the registry of what a driver's process has given other processes handles of,
// what it has opened by handles, and the processes that those came from.
type sharing struct {
	mu        sync.Mutex
	memory    map[[64]byte]*Memory    // given out
	events    map[[64]byte]*ownEvent  // given out
	imported  map[importKey]*imported // opened
	exporters map[driver.Process]*exporter
}

// importKey is a handle, and whose it is; that is zero if it is not known. The handles of a
// process that has died may be those of a later one.
type importKey struct {
	handle  [64]byte
	event   bool
	process driver.Process
}

// imported is an event or memory of another process. Whoever opens it in this process shares
// it: the driver opens and closes it once.
type imported struct {
	importKey
	dev    *Device
	native uint64
	users  int
}

// share is one use of what others have too. Calls on an event acquire it.
type share struct {
	refs.Count
	driver    *Driver
	imported  *imported            // of another process,
	ownEvent  *ownEvent            // or this one's,
	own       *nativeEvent         // which it keeps,
	ownMemory *Memory              // likewise
	exporter  *exporter            // the process that an event is of
	closed    func()               // may be nil
	destroy   func() driver.Result // with the last use: close
}

// Origin says whose a handle is: this process's own, or another's, which is zero if it is
// not known; then it may be this process's.
type Origin struct {
	Own     bool
	Process driver.Process
}

func (o Origin) known() bool { return o.Process != driver.Process{} }

// OpenEvent opens what a handle stands for, on d, as e, which is new. With an exporter it
// is watched. closed, unless nil, is called when e has released it.
func (d *Device) OpenEvent(e *Event, handle driver.IPCEventHandle, from Origin, closed func()) error {
	x := &d.Driver.sharing
	s := &share{driver: d.Driver, closed: closed}
	s.destroy = s.close
	if from.known() {
		var err error
		if s.exporter, err = d.Driver.watchExporter(from.Process); err != nil {
			return err
		}
	}
	n, err := x.openEvent(d, handle, from, s)
	if err != nil {
		s.exporter.release(d.Driver)
		return err
	}
	m := &Mark{n: n, event: n.event, dev: d, share: s}
	e.adopt(m)
	runtime.AddCleanup(m, d.forgottenImport, s)
	return nil
}

// forgottenImport closes the event that s is of, which nobody can reach, unless it was closed.
func (d *Device) forgottenImport(s *share) {
	first, last := s.Close()
	if !first {
		return
	}
	d.Driver.Live.Events.Add(-1)
	d.forgotten("event", func() error {
		if !last {
			return nil
		}
		return failed(s.close())
	})
}

func (x *sharing) openEvent(d *Device, handle [64]byte, from Origin, s *share) (*nativeEvent, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if own, n := x.ownEvent(handle); n != nil && (from.Own || !from.known()) {
		if own.dev != d {
			return nil, otherDevice(own.dev, d)
		}
		own.users++
		s.ownEvent, s.own = own, n
		return &nativeEvent{event: n.event, inUse: new(atomic.Bool)}, nil
	}
	if from.Own {
		return nil, errOwnClosed
	}
	o, err := x.open(d, importKey{handle, true, from.Process})
	if err != nil {
		return nil, err
	}
	s.imported = o
	return &nativeEvent{event: driver.Event(o.native), inUse: new(atomic.Bool)}, nil
}

func otherDevice(own, d *Device) error {
	return &Refusal{Err: ErrDeviceMismatch, Detail: fmt.Sprintf("it is of device %d of this same process, and not of device %d", own.Index, d.Index)}
}

var errOwnClosed = &Refusal{Err: ErrClosed, Detail: "this process has made it, and has closed it since, or another Driver has made it"}

// OpenMemory opens the allocation that a handle stands for.
func (d *Device) OpenMemory(handle driver.IPCMemHandle, from Origin) (*Memory, error) {
	x := &d.Driver.sharing
	s := &share{driver: d.Driver}
	s.destroy = s.close
	at, err := x.openMemory(d, handle, from, s)
	if err != nil {
		return nil, err
	}
	return d.collected(&Memory{Addr: at, Dev: d, kind: importedMemory, share: s}), nil
}

func (x *sharing) openMemory(d *Device, handle [64]byte, from Origin, s *share) (driver.DevicePtr, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if own := x.memory[handle]; own != nil && (from.Own || !from.known()) {
		if own.Dev != d {
			return 0, otherDevice(own.Dev, d)
		}
		if own.AcquireUsed() {
			s.ownMemory = own
			return own.Addr, nil
		}
	}
	if from.Own {
		return 0, errOwnClosed
	}
	o, err := x.open(d, importKey{handle, false, from.Process})
	if err != nil {
		return 0, err
	}
	s.imported = o
	return driver.DevicePtr(o.native), nil
}

// open opens what another process has, unless this one has it open. The caller holds mu.
func (x *sharing) open(d *Device, key importKey) (*imported, error) {
	o := x.imported[key]
	switch {
	case o == nil:
		native, err := d.openNative(key)
		if err != nil {
			return nil, err
		}
		o = &imported{importKey: key, dev: d, native: native}
		if x.imported == nil {
			x.imported = map[importKey]*imported{}
		}
		x.imported[key] = o
	case o.dev != d:
		return nil, &Refusal{Err: ErrDeviceMismatch, Detail: fmt.Sprintf("this process has opened it on device %d, and now on device %d", o.dev.Index, d.Index)}
	}
	o.users++
	return o, nil
}

func (d *Device) openNative(key importKey) (native uint64, err error) {
	t, err := d.Open()
	if err != nil {
		return 0, err
	}
	var r driver.Result
	if key.event {
		var e driver.Event
		e, r = t.QuietBound.IPCOpenEventHandle(key.handle)
		native = uint64(e)
	} else {
		var p driver.DevicePtr
		p, r = t.QuietBound.IPCOpenMemHandle(key.handle, driver.IPCMemLazyEnablePeerAccess)
		native = uint64(p)
	}
	switch {
	case r == driver.Success:
		return native, nil
	case r == driver.ErrorInvalidContext:
		return 0, &Refusal{Code: r, Err: ErrClosed, Detail: "the handle is of this same process, which has closed what it stands for"}
	case r == driver.ErrorMapFailed && key.event:
		return 0, &Refusal{Code: r, Detail: fmt.Sprintf("the handle is not of an event on device %d of this machine, or that is of another user, or of a container with another /dev/shm", d.Index)}
	case r == driver.ErrorInvalidValue && !key.event:
		return 0, &Refusal{Code: r, Detail: "the handle is not of memory that exists on this machine"}
	}
	return 0, r
}

// close gives up what s shares, with its last use.
func (s *share) close() driver.Result {
	d := s.driver
	s.exporter.release(d)
	r := driver.Success
	switch {
	case s.ownMemory != nil:
		s.ownMemory.leave()
	case s.ownEvent != nil:
		d.sharing.leaveEvent(s.ownEvent)
	default:
		r = d.sharing.leave(s.imported)
	}
	if s.closed != nil {
		s.closed()
	}
	return r
}

// leave gives up one use of o, and closes it with the last. Of memory that blocks until the
// device is idle.
func (x *sharing) leave(o *imported) driver.Result {
	x.mu.Lock()
	o.users--
	last := o.users == 0
	if last {
		delete(x.imported, o.importKey)
	}
	x.mu.Unlock()
	switch {
	case !last:
		return driver.Success
	case o.event:
		return o.dev.mustOpen().Quiet.EventDestroy(driver.Event(o.native))
	}
	return o.dev.blocking(func() driver.Result {
		return o.dev.mustOpen().QuietBound.IPCCloseMemHandle(driver.DevicePtr(o.native))
	})
}

// handle returns the handle by which other processes can open what s shares.
func (s *share) handle() [64]byte {
	if s.ownEvent != nil {
		return s.ownEvent.handle
	}
	return s.imported.handle
}

// Exporter returns the process that exported what m is, and false for this process's own.
func (m *Memory) Exporter() (driver.Process, bool) { return m.share.process() }

// Exporter returns the process that exported the event, and false for this process's own.
func (e *Event) Exporter() (driver.Process, bool) {
	if m := e.mark.Load(); m != nil {
		return m.share.process()
	}
	return driver.Process{}, false
}

func (s *share) process() (driver.Process, bool) {
	if s == nil || s.imported == nil {
		return driver.Process{}, false
	}
	return s.imported.process, true
}

// Extent returns how many bytes the allocation that m is of has.
func (m *Memory) Extent() (uint64, error) {
	_, n, r := m.Dev.mustOpen().QuietBound.MemGetAddressRange(m.Addr)
	return n, failed(r)
}

// WhenClosed has f called when m, an import, is over.
func (m *Memory) WhenClosed(f func()) { m.share.closed = f }

// DeviceByUUID returns the device with an identity.
func (d *Driver) DeviceByUUID(id driver.UUID) (*Device, error) {
	var visible []string
	for _, v := range d.devices {
		u, r := d.API.DeviceGetUUID(v.Native)
		if r != driver.Success {
			return nil, r
		}
		if u == id {
			return v, nil
		}
		visible = append(visible, u.String())
	}
	slices.Sort(visible)
	return nil, &Refusal{Err: ErrNoDevice, Detail: fmt.Sprintf("it is on device %v, which this process does not see; it sees %v (CUDA_VISIBLE_DEVICES, or the container, hides others)", id, visible)}
}
