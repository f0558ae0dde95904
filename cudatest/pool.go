package cudatest

import "github.com/purecuda/cuda/driver"

func (p *Process) deviceGetDefaultMemPool(d driver.Device) (pool driver.MemPool, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memPoolSetAttribute(pool driver.MemPool, a driver.MemPoolAttribute, value uint64) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memPoolGetAttribute(pool driver.MemPool, a driver.MemPoolAttribute) (value uint64, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memPoolSetAccess(pool driver.MemPool, access driver.MemAccess, count uint64) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memPoolTrimTo(pool driver.MemPool, keep uint64) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memAllocFromPoolAsync(n uint64, pool driver.MemPool, h driver.Stream) (addr driver.DevicePtr, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memFreeAsync(addr driver.DevicePtr, h driver.Stream) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
