package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// Registering pins memory that somebody else allocated. The block refers to the
// memory itself, which must stay mapped until it is unregistered.

func (p *Process) memHostRegister(ptr unsafe.Pointer, n uint64, flags uint32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("MemHostRegister")
	base := uint64(uintptr(ptr))
	const known = driver.MemHostRegisterPortable | driver.MemHostRegisterDeviceMap
	switch {
	case r != driver.Success:
		return r
	case flags&^known != 0, ptr == nil, n == 0, base+n < base:
		return driver.ErrorInvalidValue
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	if b := p.overlapping(base, n); b != nil && b.registered {
		return driver.ErrorHostMemoryAlreadyRegistered
	} else if b != nil {
		p.misuse("MemHostRegister", "%p is in memory that the driver allocated", ptr)
		return driver.ErrorInvalidValue
	}
	data := unsafe.Slice((*byte)(ptr), n)
	p.insert(&block{ctx: c, base: base, size: n, data: data, host: true, registered: true, history: new(order.Memory), made: callsite.Caller()})
	return driver.Success
}

// overlapping returns a block that has any of n bytes at base.
func (p *Process) overlapping(base, n uint64) *block {
	i, _ := p.search(base)
	if i < len(p.blocks) && p.blocks[i].base < base+n {
		return p.blocks[i]
	}
	return p.contains(base)
}

// memHostUnregister waits until the device is idle, as a real one does.
func (p *Process) memHostUnregister(ptr unsafe.Pointer) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	_, r := p.current("MemHostUnregister")
	switch {
	case r != driver.Success:
		return r
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	b := p.contains(uint64(uintptr(ptr)))
	switch {
	case b == nil:
		p.misuse("MemHostUnregister", "%p is not registered", ptr)
		return driver.ErrorHostMemoryNotRegistered
	case !b.registered || b.base != uint64(uintptr(ptr)):
		p.misuse("MemHostUnregister", "%p is not the beginning of registered memory", ptr)
		return driver.ErrorInvalidValue
	}
	return p.unpin(b)
}

// memHostGetDevicePointer answers for allocated and for registered memory. Under
// unified addressing the device's address is the host's.
func (p *Process) memHostGetDevicePointer(ptr unsafe.Pointer, flags uint32) (driver.DevicePtr, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.here("MemHostGetDevicePointer"); r != driver.Success {
		return 0, r
	}
	b := p.contains(uint64(uintptr(ptr)))
	if flags != 0 || b == nil || !b.host {
		p.misuse("MemHostGetDevicePointer", "%p is not pinned memory", ptr)
		return 0, driver.ErrorInvalidValue
	}
	return driver.HostPtr(ptr), driver.Success
}
