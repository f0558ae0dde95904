package native

import (
	"errors"
	"fmt"
	"math"

	"github.com/purecuda/cuda/driver"
)

// Pool is the driver's default memory pool of a device.
type Pool struct {
	Dev    *Device
	Native driver.MemPool
}

// Pool returns the device's pool. The first call has it keep what is freed, unless somebody
// has set a threshold already.
func (d *Device) Pool() (*Pool, error) {
	if p := d.pool.Load(); p != nil {
		return p, nil
	}
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	api := t.QuietBound
	has, r := api.DeviceGetAttribute(driver.AttributeMemoryPools, d.Native)
	if r != driver.Success {
		return nil, r
	}
	if has == 0 {
		return nil, &Refusal{Err: errors.ErrUnsupported, Detail: "the device has no memory pools"}
	}
	native, r := api.DeviceGetDefaultMemPool(d.Native)
	if r != driver.Success {
		return nil, r
	}
	threshold, r := api.MemPoolGetAttribute(native, driver.MemPoolReleaseThreshold)
	if r == driver.Success && threshold == 0 {
		r = api.MemPoolSetAttribute(native, driver.MemPoolReleaseThreshold, math.MaxUint64)
	}
	if r != driver.Success {
		return nil, r
	}
	d.pool.CompareAndSwap(nil, &Pool{d, native})
	return d.pool.Load(), nil
}

// askedByAlloc is how many pending frees an allocation asks for.
const askedByAlloc = 2

// AllocAsync allocates memory whose home is s, from the pool of its device; where that has
// none, plain memory. It asks for pending frees before it enters s: a free may have to wait
// until nobody halts the stream.
func (s *Stream) AllocAsync(bytes uint64) (*Memory, error) {
	d := s.Dev
	pool := d.pool.Load()
	if pool == nil || s.kind == kindExternal {
		var err error
		if pool, err = d.Pool(); errors.Is(err, errors.ErrUnsupported) {
			return s.allocUnpooled(bytes)
		} else if err != nil {
			return nil, err
		}
		if err := d.Default.open(); err != nil { // it may become the home
			return nil, err
		}
	}
	d.frees.ask(s, askedByAlloc)
	m, err := s.alloc(pool, bytes)
	if err == driver.ErrorOutOfMemory && d.frees.settle() {
		m, err = s.alloc(pool, bytes)
	}
	if r, ok := err.(driver.Result); ok {
		return nil, &Refusal{Code: r, Detail: fmt.Sprintf("%d bytes from the pool of device %d", bytes, d.Index)}
	}
	return m, err
}

func (s *Stream) alloc(pool *Pool, bytes uint64) (*Memory, error) {
	if err := s.enterUncaptured(); err != nil {
		return nil, err
	}
	at, r := s.quiet.MemAllocFromPoolAsync(bytes, pool.Native, s.Native)
	if r != driver.Success {
		s.leave()
		return nil, r
	}
	m := &Memory{Addr: at, Dev: s.Dev, kind: poolMemory, home: s}
	if s.kind == kindExternal { // it may be gone when the memory is freed
		m.home = s.Dev.Default
		m.usedOutside(s)
	}
	m.home.hold()
	s.leave()
	return s.Dev.collected(m), nil
}

// allocUnpooled is AllocAsync for a device without pools.
func (s *Stream) allocUnpooled(bytes uint64) (*Memory, error) {
	if err := s.enterUncaptured(); err != nil {
		return nil, err
	}
	s.leave()
	m, err := s.Dev.AllocPlain(bytes)
	if err == nil {
		m.kind = unpooledMemory
	}
	return m, err
}

// Trim gives unused memory back to the system, until the pool has no more than keep bytes
// (cuMemPoolTrimTo).
func (p *Pool) Trim(keep uint64) error {
	p.Dev.noteFrees()
	return failed(p.Dev.mustOpen().QuietBound.MemPoolTrimTo(p.Native, keep))
}

// noteFrees makes the driver take note of the frees that are done, which it does only in
// waits of its own. It waits for none.
func (d *Device) noteFrees() {
	for _, s := range d.list() {
		if s.enterUncaptured() != nil {
			continue
		}
		if s.quiet.StreamQuery(s.Native) == driver.Success {
			if m, err := s.markHere(); err == nil { // which an idle stream takes at once
				d.mustOpen().Quiet.EventSynchronize(m.event)
				m.EndWait()
			}
		}
		s.leave()
	}
}

// noteLoweredPool is noteFrees for a pool that is to give back what is freed.
func (d *Device) noteLoweredPool() {
	p := d.pool.Load()
	if p == nil {
		return
	}
	keep, r := d.mustOpen().QuietBound.MemPoolGetAttribute(p.Native, driver.MemPoolReleaseThreshold)
	if r == driver.Success && keep < math.MaxUint64 {
		d.noteFrees()
	}
}
