package cudatest

import "github.com/purecuda/cuda/driver"

// The calls on pools themselves, none of which needs a context.

func (p *Process) deviceGetDefaultMemPool(d driver.Device) (driver.MemPool, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return 0, r
	}
	if p.gpu.conf.NoMemoryPools {
		return 0, driver.ErrorNotSupported
	}
	return p.poolHandle(p.devices[d]), driver.Success
}

func (p *Process) memPoolSetAttribute(h driver.MemPool, a driver.MemPoolAttribute, value uint64) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	q, r := p.pool("MemPoolSetAttribute", h)
	switch {
	case r != driver.Success:
		return r
	case a == driver.MemPoolReleaseThreshold:
		q.threshold = value
	case value != 0: // figures can only be reset
		return driver.ErrorInvalidValue
	case a == driver.MemPoolReservedHigh:
		q.reserved.high = q.reserved.current
	case a == driver.MemPoolUsedHigh:
		q.used.high = q.used.current
	default:
		return driver.ErrorInvalidValue
	}
	return driver.Success
}

func (p *Process) memPoolGetAttribute(h driver.MemPool, a driver.MemPoolAttribute) (uint64, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	q, r := p.pool("MemPoolGetAttribute", h)
	if r != driver.Success {
		return 0, r
	}
	switch a {
	case driver.MemPoolReleaseThreshold:
		return q.threshold, driver.Success
	case driver.MemPoolReservedCurrent:
		return q.reserved.current, driver.Success
	case driver.MemPoolReservedHigh:
		return q.reserved.high, driver.Success
	case driver.MemPoolUsedCurrent:
		return q.used.current, driver.Success
	case driver.MemPoolUsedHigh:
		return q.used.high, driver.Success
	}
	return 0, driver.ErrorInvalidValue
}

func (p *Process) memPoolSetAccess(h driver.MemPool, access driver.MemAccess, count uint64) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	q, r := p.pool("MemPoolSetAccess", h)
	grant := access.Flags == driver.MemAccessReadWrite
	switch {
	case r != driver.Success:
		return r
	case count != 1, access.LocationType != driver.MemLocationDevice,
		!grant && access.Flags != driver.MemAccessNone:
		return driver.ErrorInvalidValue
	case access.LocationID < 0 || int(access.LocationID) >= len(p.devices):
		return driver.ErrorInvalidDevice
	}
	d := p.devices[access.LocationID]
	switch {
	case d == q.dev && !grant, // a device always reaches its own
		d != q.dev && !p.gpu.peers(d, q.dev):
		return driver.ErrorInvalidDevice
	case grant:
		q.access[d] = true
	default:
		delete(q.access, d)
	}
	return driver.Success
}

func (p *Process) memPoolTrimTo(h driver.MemPool, keep uint64) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	q, r := p.pool("MemPoolTrimTo", h)
	switch {
	case r != driver.Success:
		return r
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	q.shrink(keep)
	return driver.Success
}
