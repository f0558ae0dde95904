package cuda

import (
	"errors"
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// CanAccessPeer reports whether the device can use the memory of another one
// directly, over NVLink or PCIe (cuDeviceCanAccessPeer). To itself it needs no
// access: false.
func (d *Device) CanAccessPeer(peer *Device) (bool, error) {
	const op = "peer access"
	if err := d.checkPeer(op, peer); err != nil {
		return false, err
	}
	can, r := d.driver.api.DeviceCanAccessPeer(d.native, peer.native)
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
		return &Error{Op: op, Err: errors.ErrUnsupported, Detail: fmt.Sprintf("device %d cannot reach device %d directly", d.index, peer.index)}
	}
	theirs, r := peer.context()
	if r != driver.Success {
		return failure(op, r)
	}
	r = d.driver.relaxed(func() driver.Result {
		return d.bound(func(api *driver.API) driver.Result { return api.CtxEnablePeerAccess(theirs, 0) })
	})
	if r != driver.Success && r != driver.ErrorPeerAccessAlreadyEnabled {
		return failure(op, r)
	}
	pool, err := peer.MemoryPool()
	if err != nil {
		if isUnsupported(err) {
			return nil
		}
		return err
	}
	return check(op, d.driver.api.MemPoolSetAccess(pool.native, driver.MemAccess{
		LocationType: driver.MemLocationDevice, LocationID: int32(d.native), Flags: driver.MemAccessReadWrite,
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
