package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Device is one GPU of a [Driver]. Any number of goroutines may share it. There
// is one *Device per GPU and Driver, so devices can be compared with ==.
type Device struct {
	driver        *Driver
	native        *native.Device
	defaultStream Stream
	pool          atomic.Pointer[MemoryPool]
}

func newDevice(drv *Driver, index int, ordinal driver.Device) *Device {
	d := &Device{driver: drv}
	d.native = drv.native.NewDevice(index, ordinal, d)
	d.defaultStream.dev, d.defaultStream.native = d, d.native.Default
	return d
}

// open returns the driver's functions for the device, whose context is made by the first
// call.
func (d *Device) open(op string) (*native.Tables, error) {
	if err := d.usable(op); err != nil {
		return nil, err
	}
	t, err := d.native.Open()
	return t, failed(op, err)
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
	if d == nil || d.native == nil {
		return 0
	}
	return d.native.Index
}

// Name returns the device's product name (cuDeviceGetName).
func (d *Device) Name() (string, error) {
	const op = "device name"
	if err := d.usable(op); err != nil {
		return "", err
	}
	name, r := d.driver.native.API.DeviceGetName(d.native.Native)
	return name, check(op, r)
}

// UUID returns the identity of the device across processes (cuDeviceGetUuid_v2).
func (d *Device) UUID() (driver.UUID, error) {
	const op = "device uuid"
	if err := d.usable(op); err != nil {
		return driver.UUID{}, err
	}
	id, r := d.driver.native.API.DeviceGetUUID(d.native.Native)
	return id, check(op, r)
}

// Attribute returns a device attribute (cuDeviceGetAttribute).
func (d *Device) Attribute(a driver.Attribute) (int, error) {
	const op = "device attribute"
	if err := d.usable(op); err != nil {
		return 0, err
	}
	v, r := d.driver.native.API.DeviceGetAttribute(a, d.native.Native)
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
	n, r := d.driver.native.API.DeviceTotalMem(d.native.Native)
	return n, check(op, r)
}

// FreeMemory returns the bytes of device memory that are free now, for all
// processes together (cuMemGetInfo).
func (d *Device) FreeMemory() (uint64, error) {
	const op = "device memory"
	t, err := d.open(op)
	if err != nil {
		return 0, err
	}
	free, _, r := t.QuietBound.MemGetInfo()
	return free, check(op, r)
}

// StreamPriorityRange returns the priorities that streams can have: least is 0,
// greatest is negative, or 0 where the device knows no priorities
// (cuCtxGetStreamPriorityRange).
func (d *Device) StreamPriorityRange() (least, greatest int, err error) {
	const op = "stream priority range"
	t, err := d.open(op)
	if err != nil {
		return 0, 0, err
	}
	lo, hi, r := t.QuietBound.CtxGetStreamPriorityRange()
	return int(lo), int(hi), check(op, r)
}

// String names the device by its index.
func (d *Device) String() string {
	if d == nil || d.native == nil {
		return "cuda.Device(nil)"
	}
	return fmt.Sprintf("cuda.Device(%d)", d.native.Index)
}

// CanAccessPeer reports whether the device can use the memory of another one
// directly, over NVLink or PCIe (cuDeviceCanAccessPeer). To itself it needs no
// access: false.
func (d *Device) CanAccessPeer(peer *Device) (bool, error) {
	const op = "peer access"
	if err := d.checkPeer(op, peer); err != nil {
		return false, err
	}
	can, r := d.driver.native.API.DeviceCanAccessPeer(d.native.Native, peer.native.Native)
	return can != 0, check(op, r)
}

// EnablePeerAccess lets kernels on the device use the memory of peer, and makes
// copies between the two direct instead of through the host: its plain memory
// (cuCtxEnablePeerAccess) and that of its pool (cuMemPoolSetAccess). The other
// direction is a call of its own. It holds for the rest of the process; enabling
// it again is nil. Devices that cannot reach each other get an error that matches
// errors.ErrUnsupported.
func (d *Device) EnablePeerAccess(peer *Device) error {
	const op = "peer access"
	can, err := d.CanAccessPeer(peer)
	if err != nil {
		return err
	}
	if d == peer {
		return &Error{Op: op, Err: errors.ErrUnsupported, Detail: "a device needs no access to itself"}
	}
	if !can {
		return &Error{Op: op, Err: errors.ErrUnsupported, Detail: fmt.Sprintf("device %d cannot reach device %d directly", d.native.Index, peer.native.Index)}
	}
	theirs, err := peer.open(op)
	if err != nil {
		return err
	}
	ours, err := d.open(op)
	if err != nil {
		return err
	}
	r := ours.QuietBound.CtxEnablePeerAccess(theirs.Context, 0)
	if r != driver.Success && r != driver.ErrorPeerAccessAlreadyEnabled {
		return failed(op, r)
	}
	pool, err := peer.MemoryPool()
	if err != nil {
		if isUnsupported(err) {
			return nil
		}
		return err
	}
	return check(op, ours.QuietBound.MemPoolSetAccess(pool.native.Native, driver.MemAccess{
		LocationType: driver.MemLocationDevice, LocationID: int32(d.native.Native), Flags: driver.MemAccessReadWrite,
	}, 1))
}

func (d *Device) checkPeer(op string, peer *Device) error {
	if err := d.usable(op); err != nil {
		return err
	}
	switch {
	case peer == nil || peer.driver == nil:
		return invalid(op, "the peer is nil")
	case d.driver != peer.driver:
		return twoDrivers(op)
	}
	return nil
}
