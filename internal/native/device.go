package native

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/wait"
)

// Device is one GPU. Its primary context is made when something first needs it.
type Device struct {
	Driver  *Driver
	Index   int
	Native  driver.Device
	Poller  wait.Poller
	Default *Stream // the legacy default stream
	Public  any     // package cuda's Device

	primaryContext
	deviceMemory
	events   eventPool
	streams  streams
	captures captures
	background
}

// primaryContext is a device's context, once something has needed it.
type primaryContext struct {
	opening sync.Mutex
	tables  atomic.Pointer[Tables]
	// defaultOpen: the default stream can be used.
	defaultOpen atomic.Bool
}

// deviceMemory is what a device keeps for allocations and copies.
type deviceMemory struct {
	pool    atomic.Pointer[Pool]
	staging staging
	frees   frees
}

// background is for calls that the driver may block.
type background struct {
	reaper reaper
	// A crowd waits for each other here, and not in the driver with a thread each. There is
	// one mutex for each thing that the driver is asked for, as it may block in some for long.
	freeing, recording, flushing sync.Mutex
}

// Tables are the driver's functions for a device: those that need no current context and
// those that do. Each comes in relaxed capture mode too, in which a call cannot end a capture
// that another library runs in a stricter mode: whatever asks for work that may be going on,
// makes, frees and destroys goes through these.
type Tables struct {
	Context    driver.Context
	Work       *driver.API // enqueues on created streams
	Bound      *driver.API // enqueues on the default stream: the context is made current
	Quiet      *driver.API // asks for events and created streams
	QuietBound *driver.API // everything else
}

// NewDevice makes a device of the driver. It makes no call.
func (d *Driver) NewDevice(index int, native driver.Device, public any) *Device {
	v := &Device{Driver: d, Index: index, Native: native, Default: new(Stream), Public: public}
	if sleep := d.API.Sleep; sleep != nil {
		v.Poller.Sleep = sleepFor(sleep)
	}
	v.Default.init(v, 0, kindDefault)
	d.devices = append(d.devices, v)
	d.API.Retained.Add(func(native uint64) bool {
		return v.events.retains(driver.Event(native)) || v.staging.retains(native) || v.frees.retains(native) || v.retains(driver.Stream(native))
	})
	return v
}

// Open returns the device's tables. The first call retains the primary context, which
// takes long.
func (d *Device) Open() (*Tables, error) {
	if t := d.tables.Load(); t != nil {
		return t, nil
	}
	d.opening.Lock()
	defer d.opening.Unlock()
	if t := d.tables.Load(); t != nil {
		return t, nil
	}
	api := d.Driver.API
	ctx, r := api.DevicePrimaryCtxRetain(d.Native)
	if r != driver.Success {
		return nil, r
	}
	bound := api.Bound(ctx)
	t := &Tables{Context: ctx, Work: api, Bound: bound, Quiet: d.Driver.Quiet, QuietBound: bound.Quiet()}
	e, r := t.QuietBound.EventCreate(driver.EventDisableTiming)
	if r == driver.Success { // it may fail if the device is lost; then so will all else
		if wantsContext(t, e) {
			t.Work, t.Quiet = t.Bound, t.QuietBound
		}
		d.tables.Store(t)
		d.events.put(d.newEvent(e, driver.EventDisableTiming))
		return t, nil
	}
	d.tables.Store(t)
	return t, nil
}

// mustOpen returns the tables of a device that was opened.
func (d *Device) mustOpen() *Tables { return d.tables.Load() }

// wantsContext reports whether the driver wants a current context where today's drivers
// want none: for created streams and for events.
func wantsContext(t *Tables, e driver.Event) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if c, r := t.Work.CtxGetCurrent(); r == driver.Success && c != 0 {
		if c, r := t.Work.CtxPopCurrent(); r == driver.Success {
			defer t.Work.CtxPushCurrent(c)
		}
	}
	return t.Quiet.EventSynchronize(e) == driver.ErrorInvalidContext // it was never recorded
}

// blocking calls f, which may block until the device is idle. Callers wait for each other
// here and not in the driver, where each would hold a thread; a simulated driver, which says
// so by its Sleep, holds none.
func (d *Device) blocking(f func() driver.Result) driver.Result {
	if d.Driver.API.Sleep == nil {
		d.freeing.Lock()
		defer d.freeing.Unlock()
	}
	return f()
}

func (d *Device) String() string { return fmt.Sprintf("device %d", d.Index) }

// streams are the streams of a device that exist, except for the default stream.
type streams struct {
	mu  sync.Mutex
	all map[*Stream]struct{}
}

func (l *streams) remove(s *Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
}

// retains reports whether a stream was closed and exists for memory that is not free yet.
func (d *Device) retains(native driver.Stream) bool {
	for _, s := range d.list() {
		if s.Native == native && s.Closed() {
			return true
		}
	}
	return false
}

// list returns the streams of d, the default stream among them.
func (d *Device) list() []*Stream {
	d.streams.mu.Lock()
	defer d.streams.mu.Unlock()
	list := []*Stream{d.Default}
	for s := range d.streams.all {
		list = append(list, s)
	}
	return list
}
