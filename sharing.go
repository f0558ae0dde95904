package cuda

import (
	"fmt"
	"slices"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// sharing is what a driver's process and others have of each other: what it has given
// handles out of, what it has opened by handles, and whose that is.
type sharing struct {
	mu        sync.Mutex
	given     map[sharedKey]*handle
	imported  map[importKey]*imported
	exporters map[driver.Process]*exporter
}

// sharedKey is a handle of the driver for other processes.
type sharedKey struct {
	kind  TokenKind
	bytes [64]byte
}

// importKey is a handle and whose it is; that is zero if it is not known. The handles of
// a process that has died may be those of a later one.
type importKey struct {
	sharedKey
	process driver.Process
}

// imported is an event or memory of another process. Whoever opens it in this process
// shares it: the driver opens and closes it once.
type imported struct {
	importKey
	dev    *Device
	native uint64
	users  int // guarded by the mutex of sharing
}

// share is what a handle has instead of a native object of its own: one that others
// use too.
type share struct {
	imported *imported
	exporter *exporter // of an event, that process
	// own is the object, if it is this process's own: it lives for as long as somebody
	// who has opened it does.
	own    *handle
	closed func() // may be nil
}

// give notes that others can open h by the handle.
func (x *sharing) give(key sharedKey, h *handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.given == nil {
		x.given = map[sharedKey]*handle{}
	}
	x.given[key] = h
	if h.given == nil {
		h.given = &key
	}
}

// takeBack is called when h is destroyed: the driver may give another object the same
// handle.
func (x *sharing) takeBack(h *handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h.given != nil && x.given[*h.given] == h {
		delete(x.given, *h.given)
	}
}

// origin says whose a handle is. If own is not set and the process is not known, it may
// be this process's.
type origin struct {
	own     bool
	process driver.Process
}

func (o origin) known() bool { return o.process != driver.Process{} }

// open opens what key stands for, on d, and returns a handle that shares it.
func (x *sharing) open(op string, d *Device, key sharedKey, from origin) (*handle, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if own := x.given[key]; own != nil && (from.own || !from.known()) {
		switch {
		case own.dev != d:
			return nil, &Error{Op: op, Err: ErrDeviceMismatch, Detail: fmt.Sprintf("it is of device %d of this same process, and not of device %d", own.dev.index, d.index)}
		case own.tryRetain():
			return newShare(d, own.native, &share{own: own}, key.kind), nil
		}
	}
	if from.own {
		return nil, &Error{Op: op, Err: ErrClosed, Detail: "this process has made it, and has closed it since, or another Driver has made it"}
	}
	o := x.imported[importKey{key, from.process}]
	switch {
	case o == nil:
		native, err := d.openNative(op, key)
		if err != nil {
			return nil, err
		}
		o = &imported{importKey: importKey{key, from.process}, dev: d, native: native}
		if x.imported == nil {
			x.imported = map[importKey]*imported{}
		}
		x.imported[o.importKey] = o
	case o.dev != d:
		return nil, &Error{Op: op, Err: ErrDeviceMismatch, Detail: fmt.Sprintf("this process has opened it on device %d, and now on device %d", o.dev.index, d.index)}
	}
	o.users++
	return newShare(d, o.native, &share{imported: o}, key.kind), nil
}

func newShare(d *Device, native uint64, s *share, k TokenKind) *handle {
	kind := kindEvent
	if k == MemoryToken {
		kind = kindBuffer
	}
	h := newHandle(d, kind, native)
	h.shared = s
	if k == MemoryToken {
		h.mem = &h.memory
		h.mem.plain = d
	}
	return h
}

// openNative asks the driver to open what key stands for.
func (d *Device) openNative(op string, key sharedKey) (native uint64, err error) {
	r := d.driver.relaxed(func() driver.Result {
		return d.bound(func(api *driver.API) driver.Result {
			if key.kind == EventToken {
				e, r := api.IPCOpenEventHandle(key.bytes)
				native = uint64(e)
				return r
			}
			p, r := api.IPCOpenMemHandle(key.bytes, driver.IPCMemLazyEnablePeerAccess)
			native = uint64(p)
			return r
		})
	})
	switch {
	case r == driver.Success:
		return native, nil
	case r == driver.ErrorInvalidContext:
		err = &Error{Op: op, Code: r, Err: ErrClosed, Detail: "the handle is of this same process, which has closed what it stands for"}
	case r == driver.ErrorMapFailed && key.kind == EventToken:
		err = &Error{Op: op, Code: r, Detail: fmt.Sprintf("the handle is not of an event on device %d of this machine, or that is of another user, or of a container with another /dev/shm", d.index)}
	case r == driver.ErrorInvalidValue && key.kind == MemoryToken:
		err = &Error{Op: op, Code: r, Detail: "the handle is not of memory that exists on this machine"}
	default:
		err = failure(op, r)
	}
	return 0, err
}

// release lets go of what h shares.
func (s *share) release(h *handle) driver.Result {
	d := h.dev
	if s.exporter != nil {
		s.exporter.release(d.driver)
	}
	r := driver.Success
	switch {
	case s.own != nil:
		s.own.release()
	case d.driver.sharing.leave(s.imported):
		r = s.imported.close()
	}
	if s.closed != nil {
		s.closed()
	}
	return r
}

// leave reports whether it was the last user of o who leaves.
func (x *sharing) leave(o *imported) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o.users--
	if o.users > 0 {
		return false
	}
	delete(x.imported, o.importKey)
	return true
}

// whenClosed has o.Closed called when h, which nobody uses yet, has let go.
func (h *handle) whenClosed(o *ImportOptions) {
	if o == nil || o.Closed == nil {
		return
	}
	h.shared.closed = o.Closed
	if h.mem != nil {
		// The driver waits for the device only with the last who closes the memory, so
		// each stream that uses it gets a mark, and is waited for.
		h.mem.plain = nil
	}
}

// close closes what the driver opened. For memory it blocks until the device is idle.
func (o *imported) close() driver.Result {
	if o.kind == EventToken {
		return o.dev.call(func(api *driver.API) driver.Result { return api.EventDestroy(driver.Event(o.native)) })
	}
	return o.dev.bound(func(api *driver.API) driver.Result { return api.IPCCloseMemHandle(driver.DevicePtr(o.native)) })
}

// handle returns the handle by which other processes can open what s is of.
func (s *share) handle() [64]byte {
	if s.own != nil {
		return s.own.given.bytes
	}
	return s.imported.bytes
}

// deviceOf returns the device with an identity.
func (d *Driver) deviceOf(op string, id driver.UUID) (*Device, error) {
	var visible []string
	for _, dev := range d.devices {
		u, err := dev.UUID()
		if err != nil {
			return nil, err
		}
		if u == id {
			return dev, nil
		}
		visible = append(visible, u.String())
	}
	slices.Sort(visible)
	return nil, &Error{Op: op, Err: ErrNoDevice, Detail: fmt.Sprintf("it is on device %v, which this process does not see; it sees %v (CUDA_VISIBLE_DEVICES, or the container, hides others)", id, visible)}
}
