package cuda

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// MemoryPool is the driver's default memory pool of a device, from which
// [AllocAsync] allocates. Other libraries of the process may use it as well. Any
// number of goroutines may share it.
type MemoryPool struct {
	dev    *Device
	native *native.Pool
}

// MemoryPool returns the device's pool (cuDeviceGetDefaultMemPool). The first call
// makes the pool keep memory that is freed, for the next to ask for it, instead
// of giving it back to the system whenever the device is waited for; unless
// somebody has set a threshold already. Where the device has no pools the error
// matches errors.ErrUnsupported.
func (d *Device) MemoryPool() (*MemoryPool, error) {
	const op = "memory pool"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if p := d.pool.Load(); p != nil {
		return p, nil
	}
	pool, err := d.native.Pool()
	if err != nil {
		return nil, failed(op, err)
	}
	d.pool.CompareAndSwap(nil, &MemoryPool{d, pool})
	return d.pool.Load(), nil
}

// Device returns the device whose memory the pool gives out.
func (p *MemoryPool) Device() *Device {
	if p == nil {
		return nil
	}
	return p.dev
}

// usable refuses what no device has given out.
func (p *MemoryPool) usable(op string) error {
	if p == nil || p.dev == nil {
		return invalid(op, "the memory pool is nil")
	}
	return nil
}

// Handle returns the native CUmemoryPool.
func (p *MemoryPool) Handle() driver.MemPool {
	if p == nil || p.native == nil {
		return 0
	}
	return p.native.Native
}

// SetReleaseThreshold says how many bytes the pool keeps, unused ones included,
// when a device or a stream is waited for with Synchronize or SynchronizeContext;
// what is more goes back to the system.
func (p *MemoryPool) SetReleaseThreshold(bytes uint64) error {
	const op = "memory pool threshold"
	if err := p.usable(op); err != nil {
		return err
	}
	return check(op,
		p.dev.driver.native.Quiet.MemPoolSetAttribute(p.native.Native, driver.MemPoolReleaseThreshold, bytes))
}

// PoolStats are the figures of a [MemoryPool], in bytes.
type PoolStats struct {
	Used         uint64 // allocated and not freed
	UsedHigh     uint64 // the most since the last reset
	Reserved     uint64 // taken from the system
	ReservedHigh uint64
}

// Stats returns the pool's figures at this moment (cuMemPoolGetAttribute).
func (p *MemoryPool) Stats() (PoolStats, error) {
	const op = "memory pool stats"
	if err := p.usable(op); err != nil {
		return PoolStats{}, err
	}
	var s PoolStats
	for a, field := range map[driver.MemPoolAttribute]*uint64{
		driver.MemPoolUsedCurrent:     &s.Used,
		driver.MemPoolUsedHigh:        &s.UsedHigh,
		driver.MemPoolReservedCurrent: &s.Reserved,
		driver.MemPoolReservedHigh:    &s.ReservedHigh,
	} {
		v, r := p.dev.driver.native.Quiet.MemPoolGetAttribute(p.native.Native, a)
		if r != driver.Success {
			return PoolStats{}, check(op, r)
		}
		*field = v
	}
	return s, nil
}

// ResetHigh makes the high-water marks begin anew from the present figures.
func (p *MemoryPool) ResetHigh() error {
	const op = "memory pool reset"
	if err := p.usable(op); err != nil {
		return err
	}
	for _, a := range []driver.MemPoolAttribute{driver.MemPoolUsedHigh, driver.MemPoolReservedHigh} {
		if r := p.dev.driver.native.Quiet.MemPoolSetAttribute(p.native.Native, a, 0); r != driver.Success {
			return check(op, r)
		}
	}
	return nil
}

// Trim gives unused memory back to the system, until the pool has no more than
// keep bytes or all that it has is in use (cuMemPoolTrimTo). Memory whose free
// the device has not reached yet is in use.
func (p *MemoryPool) Trim(keep uint64) error {
	const op = "memory pool trim"
	if err := p.usable(op); err != nil {
		return err
	}
	return failed(op, p.native.Trim(keep))
}
