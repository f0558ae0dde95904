package races

import (
	"slices"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// memory is the allocations that were made by the table.
type memory struct {
	spans []span // in the order of their addresses; none overlap
}

// span is addresses of a block.
type span struct {
	from, to uint64
	block    *block
}

// block is an allocation.
type block struct {
	base    uint64
	host    bool
	opened  int // how often memory of another process was
	made    callsite.Site
	history order.Memory
	written map[uint64][]wordWrite // by offset: the last writes of words that were enqueued
}

// use is bytes of a block that an operation uses.
type use struct {
	block    *block
	from, to uint64
	kind     order.Kind
}

// at returns where in the spans an address is, or would be.
func (m *memory) at(addr uint64) int {
	i, _ := slices.BinarySearchFunc(m.spans, addr, func(s span, addr uint64) int {
		if s.to <= addr {
			return -1
		}
		return 1
	})
	return i
}

// find returns the block at an address, nil if it is not known.
func (m *memory) find(addr uint64) *block {
	if i := m.at(addr); i < len(m.spans) && m.spans[i].from <= addr {
		return m.spans[i].block
	}
	return nil
}

// insert adds a span, in place of what was at its addresses.
func (m *memory) insert(s span) {
	i := m.at(s.from)
	j := i
	for j < len(m.spans) && m.spans[j].from < s.to {
		j++
	}
	m.spans = slices.Replace(m.spans, i, j, s)
}

// remove removes a block, which may be nil.
func (m *memory) remove(b *block) {
	if b != nil {
		m.spans = slices.DeleteFunc(m.spans, func(s span) bool { return s.block == b })
	}
}

// use describes n bytes from an address; there is nothing to say of memory that is not known.
func (d *detector) use(addr, n uint64, kind order.Kind) []use {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.find(addr)
	if b == nil || n == 0 {
		return nil
	}
	return []use{{b, addr - b.base, addr - b.base + n, kind}}
}

// made adds an allocation.
func (d *detector) made(base, n uint64, host bool, at callsite.Site) *block {
	b := &block{base: base, host: host, made: at}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.insert(span{base, base + n, b})
	return b
}

// free removes the allocation at an address before the driver can give that out again, and puts
// it back if the driver refuses.
func (d *detector) free(base uint64, call func() driver.Result) driver.Result {
	d.mu.Lock()
	i := d.at(base)
	known := i < len(d.spans) && d.spans[i].from <= base
	var s span
	if known {
		s = d.spans[i]
		d.remove(s.block)
	}
	d.mu.Unlock()
	r := call()
	if r != driver.Success && known {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := d.at(s.from); i == len(d.spans) || d.spans[i].from >= s.to {
			d.insert(s)
		}
	}
	return r
}

func (d *detector) wrapMemory(api *driver.API) {
	address := func(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }
	api.MemAlloc = func(n uint64) (driver.DevicePtr, driver.Result) {
		p, r := d.api.MemAlloc(n)
		if r == driver.Success {
			d.made(uint64(p), n, false, callsite.Caller())
		}
		return p, r
	}
	api.MemFree = func(p driver.DevicePtr) driver.Result {
		return d.free(uint64(p), func() driver.Result { return d.api.MemFree(p) })
	}
	api.MemHostAlloc = func(n uint64, flags uint32) (unsafe.Pointer, driver.Result) {
		p, r := d.api.MemHostAlloc(n, flags)
		if r == driver.Success {
			d.made(address(p), n, true, callsite.Caller())
		}
		return p, r
	}
	api.MemFreeHost = func(p unsafe.Pointer) driver.Result {
		return d.free(address(p), func() driver.Result { return d.api.MemFreeHost(p) })
	}
	api.MemHostRegister = func(p unsafe.Pointer, n uint64, flags uint32) driver.Result {
		r := d.api.MemHostRegister(p, n, flags)
		if r == driver.Success {
			d.made(address(p), n, true, callsite.Caller())
		}
		return r
	}
	api.MemHostUnregister = func(p unsafe.Pointer) driver.Result {
		return d.free(address(p), func() driver.Result { return d.api.MemHostUnregister(p) })
	}
	api.IPCOpenMemHandle = func(h driver.IPCMemHandle, flags uint32) (driver.DevicePtr, driver.Result) {
		p, r := d.api.IPCOpenMemHandle(h, flags)
		if r == driver.Success {
			d.opened(p, callsite.Caller())
		}
		return p, r
	}
	api.IPCCloseMemHandle = func(p driver.DevicePtr) driver.Result {
		d.mu.Lock()
		if b := d.find(uint64(p)); b != nil {
			if b.opened--; b.opened <= 0 {
				d.remove(b)
			}
		}
		d.mu.Unlock()
		return d.api.IPCCloseMemHandle(p)
	}
	api.MemAllocFromPoolAsync = func(n uint64, pool driver.MemPool, h driver.Stream) (p driver.DevicePtr, r driver.Result) {
		s := d.stream(h)
		o := &operation{task: &Task{What: "allocation", Stream: s, At: callsite.Caller()}}
		return p, d.put(s, o, func() driver.Result {
			if p, r = d.api.MemAllocFromPoolAsync(n, pool, h); r == driver.Success {
				o.uses = []use{{d.made(uint64(p), n, false, o.task.At), 0, n, order.Write}}
			}
			return r
		})
	}
	api.MemFreeAsync = func(p driver.DevicePtr, h driver.Stream) driver.Result {
		uses := d.all(uint64(p))
		return d.enqueue(h, "free", uses, func() driver.Result {
			return d.free(uint64(p), func() driver.Result { return d.api.MemFreeAsync(p, h) })
		})
	}
}

// all describes all of the allocation at an address, as written.
func (d *detector) all(base uint64) []use {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.at(base)
	if i == len(d.spans) || d.spans[i].from != base {
		return nil
	}
	return []use{{d.spans[i].block, 0, d.spans[i].to - base, order.Write}}
}

// opened adds memory of another process, unless it has been opened before.
func (d *detector) opened(p driver.DevicePtr, at callsite.Site) {
	base, n, r := d.api.MemGetAddressRange(p)
	if r != driver.Success {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.find(uint64(p))
	if b == nil {
		b = &block{base: uint64(base), made: at}
		d.insert(span{b.base, b.base + n, b})
	}
	b.opened++
}
