package cudatest

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// Poison is what every byte of a fresh allocation holds, so that reading what
// was never written shows.
const Poison = 0xCD

// block is an allocation: device memory, pinned host memory, or the memory of
// another process that was opened here.
type block struct {
	ctx        *context
	base       uint64
	size       uint64
	data       []byte // nil once freed; work in flight keeps its own reference
	host       bool
	registered bool    // host memory that somebody else allocated
	opened     int     // how often it was opened; 0 for one's own
	mem        *extent // device memory
	chunk      *chunk  // of the pool that it is from
	history    *order.Memory
	made       callsite.Site
}

// extent is device memory, which an allocation and those opened from its IPC
// handle share.
type extent struct {
	dev  *device
	size uint64 // as it counts against the device's memory
	refs int
	ipc  uint64 // its number in GPU.exports, if it has one
}

// alignment is what addresses and sizes of device memory are rounded to.
const alignment = 256

// release gives the block's memory back, except to work in flight.
func (b *block) release() {
	if b.data == nil {
		return
	}
	b.data = nil
	if b.mem == nil {
		return
	}
	if b.opened == 0 && b.mem.ipc != 0 {
		delete(b.ctx.proc.gpu.exports, b.mem.ipc)
	}
	if b.mem.refs--; b.mem.refs == 0 {
		b.mem.dev.used -= b.mem.size
	}
}

// insert adds b to the process's memory.
func (p *Process) insert(b *block) {
	i, _ := p.search(b.base)
	p.blocks = slices.Insert(p.blocks, i, b)
}

// search finds the index of the block that begins at addr.
func (p *Process) search(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(p.blocks, addr, func(b *block, a uint64) int { return cmp.Compare(b.base, a) })
}

// remove takes the block that begins at addr off the process's memory.
func (p *Process) remove(b *block) {
	p.forget(b)
	b.release()
}

// forget makes the addresses of b mean nothing to the process.
func (p *Process) forget(b *block) {
	if i, ok := p.search(b.base); ok {
		p.blocks = slices.Delete(p.blocks, i, i+1)
	}
}

// begins returns the block that begins at addr, if there is one.
func (p *Process) begins(addr uint64) *block {
	i, ok := p.search(addr)
	if !ok {
		return nil
	}
	return p.blocks[i]
}

// contains returns the block in which addr is.
func (p *Process) contains(addr uint64) *block {
	i, ok := p.search(addr)
	if !ok {
		i--
	}
	if i < 0 || addr-p.blocks[i].base >= p.blocks[i].size || p.blocks[i].data == nil {
		return nil
	}
	return p.blocks[i]
}

// bytes returns the n bytes at addr, nil if they are not all in one block.
func (p *Process) bytes(addr driver.DevicePtr, n uint64) ([]byte, *block) {
	b := p.contains(uint64(addr))
	if b == nil {
		return nil, nil
	}
	offset := uint64(addr) - b.base
	if n > b.size-offset {
		return nil, nil
	}
	return b.data[offset : offset+n : offset+n], b
}

// fresh returns n poisoned bytes whose address is a multiple of align.
func fresh(n, align uint64) []byte {
	data := make([]byte, n+align)
	skip := -uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) % align
	data = data[skip : skip+n : skip+n]
	fill(data, []byte{Poison})
	return data
}

// fill repeats pattern over data, whose length is a multiple of the pattern's.
func fill(data, pattern []byte) {
	for n := copy(data, pattern); n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

func (p *Process) memGetInfo() (free, total uint64, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("MemGetInfo")
	if r != driver.Success {
		return 0, 0, r
	}
	total = p.gpu.conf.Memory
	return total - c.dev.used, total, driver.Success
}

// memGetAddressRange does not find another device's memory: a real driver was seen
// to miss it, though not always.
func (p *Process) memGetAddressRange(ptr driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("MemGetAddressRange")
	if r != driver.Success {
		return 0, 0, r
	}
	b := p.contains(uint64(ptr))
	if b == nil || !b.host && b.ctx != c {
		return 0, 0, driver.ErrorNotFound
	}
	return driver.DevicePtr(b.base), b.size, driver.Success
}

func (p *Process) memAlloc(n uint64) (driver.DevicePtr, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("MemAlloc")
	switch {
	case r != driver.Success:
		return 0, r
	case n == 0:
		return 0, driver.ErrorInvalidValue
	case p.forbidden():
		return 0, driver.ErrorStreamCaptureUnsupported
	}
	size := n + (-n)%alignment
	if size < n || !p.room(c.dev, size) {
		return 0, driver.ErrorOutOfMemory
	}
	c.dev.used += size
	b := &block{
		ctx:     c,
		size:    n,
		data:    fresh(n, alignment),
		mem:     &extent{dev: c.dev, size: size, refs: 1},
		history: new(order.Memory),
		made:    callsite.Caller(),
	}
	p.place(b)
	return driver.DevicePtr(b.base), driver.Success
}

// place gives b an address in its device's range, with a gap behind it, so that
// running over its end is not reading another allocation.
func (p *Process) place(b *block) {
	b.base = b.mem.dev.next
	b.mem.dev.next += b.size + (-b.size)%alignment + alignment
	p.insert(b)
}

// memFree may run in a cleanup: see the package's comment.
func (p *Process) memFree(ptr driver.DevicePtr) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	_, r := p.here("MemFree")
	switch {
	case r != driver.Success:
		return r
	case ptr == 0:
		return driver.Success
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	b := p.begins(uint64(ptr))
	if b == nil || b.host || b.opened > 0 || b.data == nil {
		p.misuse("MemFree", "%#x is not the beginning of allocated device memory", ptr)
		return driver.ErrorInvalidValue
	}
	b.ctx.drain() // lets go of the lock
	if b.data == nil {
		return driver.ErrorInvalidValue // somebody else freed it meanwhile
	}
	if b.chunk != nil {
		// Nothing has been waited for if this is a cleanup.
		b.chunk.pool.put(b, nil, b.ctx.end(), b.ctx.work()...)
		return b.ctx.answer()
	}
	p.remove(b)
	return b.ctx.answer()
}

func (p *Process) memHostAlloc(n uint64, flags uint32) (unsafe.Pointer, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("MemHostAlloc")
	const known = driver.MemHostAllocPortable | driver.MemHostAllocDeviceMap | driver.MemHostAllocWriteCombined
	switch {
	case r != driver.Success:
		return nil, r
	case flags&^known != 0:
		return nil, driver.ErrorInvalidValue
	case p.forbidden():
		return nil, driver.ErrorStreamCaptureUnsupported
	case n == 0:
		return nil, driver.Success
	case n > 1<<40:
		return nil, driver.ErrorOutOfMemory
	}
	const page = 4096
	b := &block{ctx: c, size: n, data: fresh(n, page), host: true, history: new(order.Memory), made: callsite.Caller()}
	ptr := unsafe.Pointer(unsafe.SliceData(b.data))
	b.base = uint64(uintptr(ptr))
	p.insert(b)
	return ptr, driver.Success
}

// memFreeHost waits until the device is idle, as a real one does, but not in a
// cleanup: see the package's comment.
func (p *Process) memFreeHost(ptr unsafe.Pointer) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	_, r := p.current("MemFreeHost")
	switch {
	case r != driver.Success:
		return r
	case ptr == nil:
		return driver.Success
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	b := p.begins(uint64(uintptr(ptr)))
	if b == nil || !b.host || b.registered || b.data == nil {
		p.misuse("MemFreeHost", "%p is not the beginning of allocated host memory", ptr)
		return driver.ErrorInvalidValue
	}
	return p.unpin(b)
}

// unpin waits until the device is idle and takes host memory off the process's.
func (p *Process) unpin(b *block) driver.Result {
	b.ctx.drain() // lets go of the lock
	if b.data == nil {
		return driver.ErrorInvalidValue // somebody else freed it meanwhile
	}
	p.remove(b)
	return b.ctx.answer()
}
