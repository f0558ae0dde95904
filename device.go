package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Device is one GPU of a [Driver]. Any number of goroutines may share it. There
// is one *Device per GPU and Driver, so devices can be compared with ==.
type Device struct {
	driver *Driver
	index  int
	native driver.Device

	retain     sync.Mutex
	ctx        atomic.Uintptr             // the primary context, once retained
	within     atomic.Pointer[driver.API] // functions that make it current by themselves, see bound
	pool       atomic.Pointer[MemoryPool]
	staging    staging
	milestones milestones
	events     eventPool
	rounds     rounds
	freed      freed
	watcher    *watcher
	// line is where those stand who would otherwise stand in line inside the driver,
	// with a thread each.
	line          sync.Mutex
	chores        chores
	defaultStream Stream
}

func newDevice(drv *Driver, index int, native driver.Device) *Device {
	d := &Device{driver: drv, index: index, native: native, watcher: &drv.watchers[index%maxWatchers]}
	d.defaultStream = Stream{dev: d, h: &handle{dev: d, kind: kindExternalStream}, isDefault: true}
	return d
}

// Driver returns the driver that the device belongs to.
func (d *Device) Driver() *Driver {
	if d == nil {
		return nil
	}
	return d.driver
}

// usable refuses what no Driver has given out.
func (d *Device) usable(op string) error {
	if d == nil || d.driver == nil {
		return invalid(op, "the device is nil")
	}
	return nil
}

// Index returns the device's number in this process. Other processes may count
// differently; [Device.UUID] is the same in all.
func (d *Device) Index() int {
	if d == nil {
		return 0
	}
	return d.index
}

// Name returns the device's product name (cuDeviceGetName).
func (d *Device) Name() (string, error) {
	const op = "device name"
	if err := d.usable(op); err != nil {
		return "", err
	}
	name, r := d.driver.api.DeviceGetName(d.native)
	return name, check(op, r)
}

// UUID returns the identity of the device across processes (cuDeviceGetUuid_v2).
func (d *Device) UUID() (driver.UUID, error) {
	const op = "device uuid"
	if err := d.usable(op); err != nil {
		return driver.UUID{}, err
	}
	id, r := d.driver.api.DeviceGetUUID(d.native)
	return id, check(op, r)
}

// Attribute returns a device attribute (cuDeviceGetAttribute).
func (d *Device) Attribute(a driver.Attribute) (int, error) {
	const op = "device attribute"
	if err := d.usable(op); err != nil {
		return 0, err
	}
	v, r := d.driver.api.DeviceGetAttribute(a, d.native)
	return int(v), check(op, r)
}

// ComputeCapability returns the architecture's version: 9, 0 for Hopper.
func (d *Device) ComputeCapability() (major, minor int, err error) {
	if major, err = d.Attribute(driver.AttributeComputeCapabilityMajor); err != nil {
		return 0, 0, err
	}
	minor, err = d.Attribute(driver.AttributeComputeCapabilityMinor)
	return major, minor, err
}

// TotalMemory returns the bytes of memory on the device (cuDeviceTotalMem).
func (d *Device) TotalMemory() (uint64, error) {
	const op = "device memory"
	if err := d.usable(op); err != nil {
		return 0, err
	}
	n, r := d.driver.api.DeviceTotalMem(d.native)
	return n, check(op, r)
}

// FreeMemory returns the bytes of device memory that are free now, for all
// processes together (cuMemGetInfo).
func (d *Device) FreeMemory() (uint64, error) {
	const op = "device memory"
	if err := d.usable(op); err != nil {
		return 0, err
	}
	var free uint64
	r := d.bound(func(api *driver.API) (r driver.Result) {
		free, _, r = api.MemGetInfo()
		return r
	})
	return free, check(op, r)
}

// StreamPriorityRange returns the priorities that streams can have: least is 0,
// greatest is negative, or 0 where the device knows no priorities
// (cuCtxGetStreamPriorityRange).
func (d *Device) StreamPriorityRange() (least, greatest int, err error) {
	const op = "stream priority range"
	if err := d.usable(op); err != nil {
		return 0, 0, err
	}
	var lo, hi int32
	r := d.bound(func(api *driver.API) (r driver.Result) {
		lo, hi, r = api.CtxGetStreamPriorityRange()
		return r
	})
	return int(lo), int(hi), check(op, r)
}

// String names the device by its index.
func (d *Device) String() string {
	if d == nil {
		return "cuda.Device(nil)"
	}
	return fmt.Sprintf("cuda.Device(%d)", d.index)
}

// context returns the primary context, which the first call retains.
func (d *Device) context() (driver.Context, driver.Result) {
	if c := d.ctx.Load(); c != 0 {
		return driver.Context(c), driver.Success
	}
	d.retain.Lock()
	defer d.retain.Unlock()
	if c := d.ctx.Load(); c != 0 {
		return driver.Context(c), driver.Success
	}
	c, r := d.driver.api.DevicePrimaryCtxRetain(d.native)
	if r == driver.Success {
		d.ctx.Store(uintptr(c))
	}
	return c, r
}

// bound runs f with functions that work with the device's primary context, and
// leaves the calling thread's current context as it was. The calls that create,
// that concern the whole device, or that name the default stream need it.
// Goroutines move between threads, so nothing is ever left current.
func (d *Device) bound(f func(api *driver.API) driver.Result) driver.Result {
	c, r := d.context()
	if r != driver.Success {
		return r
	}
	if within := d.within.Load(); within != nil {
		return f(within)
	}
	api := d.driver.api
	if api.Fused != nil {
		d.within.Store(api.Fused.Within(c))
		return f(d.within.Load())
	}
	runtime.LockOSThread()
	if r = api.CtxPushCurrent(c); r == driver.Success {
		r = f(api)
		if _, popped := api.CtxPopCurrent(); r == driver.Success {
			r = popped // else f's own failure says more
		}
	}
	runtime.UnlockOSThread()
	return r
}

// call runs f as it is, and with the context bound if the driver wants one:
// today's drivers need none for work on created streams and events, older ones
// may.
func (d *Device) call(f func(api *driver.API) driver.Result) driver.Result {
	r := f(d.driver.api)
	if r == driver.ErrorInvalidContext {
		r = d.bound(f)
	}
	return r
}

// createEvent makes an event that no handle owns.
func (d *Device) createEvent(flags uint32) (e driver.Event, r driver.Result) {
	r = d.bound(func(api *driver.API) (r driver.Result) {
		e, r = api.EventCreate(flags)
		return r
	})
	return e, r
}

// destroyEvent destroys an event that no handle owns.
func (d *Device) destroyEvent(e driver.Event) {
	r := d.call(func(api *driver.API) driver.Result { return api.EventDestroy(e) })
	if r != driver.Success && r != driver.ErrorDeinitialized {
		d.driver.cleanupFailed(failure("event destroy", r))
	}
}
