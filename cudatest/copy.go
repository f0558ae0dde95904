package cudatest

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// end is one end of a copy.
type end struct {
	data  []byte
	block *block // nil for pageable host memory
	from  uint64 // where in the block
}

// part returns n bytes of e from an offset on.
func (e end) part(offset, n uint64) end {
	return end{e.data[offset : offset+n : offset+n], e.block, e.from + offset}
}

// device returns the device on which the memory is, nil for host memory.
func (e end) device() *device {
	if e.block == nil || e.block.host {
		return nil
	}
	return e.block.mem.dev
}

// host reports whether the memory is pinned host memory.
func (e end) host() bool { return e.block != nil && e.block.host }

// end finds n bytes at a unified address.
func (p *Process) end(addr driver.DevicePtr, n uint64) (end, bool) {
	data, b := p.bytes(addr, n)
	if b == nil {
		return end{}, false
	}
	return end{data, b, uint64(addr) - b.base}, true
}

// hostEnd finds n bytes of host memory, pinned or not.
func (p *Process) hostEnd(ptr unsafe.Pointer, n uint64) (end, bool) {
	if ptr == nil {
		return end{}, false
	}
	if p.contains(uint64(uintptr(ptr))) != nil {
		return p.end(driver.HostPtr(ptr), n)
	}
	return end{data: unsafe.Slice((*byte)(ptr), n)}, true
}

// moves returns how long a copy of n bytes takes.
func (g *GPU) moves(n uint64, dst, src end) time.Duration {
	switch to, from := dst.device(), src.device(); {
	case to == nil || from == nil:
		return g.conf.moving(n, g.conf.HostBandwidth)
	case to == from:
		return g.conf.moving(n, g.conf.DeviceBandwidth)
	}
	return g.conf.moving(n, g.conf.PeerBandwidth)
}

// copies enqueues a copy on s. Pageable memory is read at once, as the driver
// may; when such memory is written the call returns after that.
func (p *Process) copies(s *stream, dst, src end) driver.Result {
	to, from := dst.data, src.data
	if src.block == nil && s.capture == nil {
		from = append([]byte(nil), from...)
	}
	d := p.gpu.moves(uint64(len(from)), dst, src)
	uses := []use{src.use(order.Read), dst.use(order.Write)}
	o := &op{
		what: "memcpy",
		task: s.task("copy"),
		dur:  int64(d),
		effect: func() []use {
			copy(to, from)
			return uses
		},
		visible: dst.host(),
	}
	r := s.enqueue(o)
	if r != driver.Success || dst.block != nil || s.capture != nil {
		return r
	}
	at := s.sequence.Last() // not of o, which may be done
	p.gpu.await(s.ctx, o)
	s.ctx.hostWaited(at)
	return s.ctx.answer()
}

func (p *Process) memcpyAsync(dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	return p.unified("MemcpyAsync", dst, src, n, h)
}

func (p *Process) memcpyDtoDAsync(dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	return p.unified("MemcpyDtoDAsync", dst, src, n, h)
}

func (p *Process) unified(fn string, dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	defer p.enter(fn, h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, h)
	if r != driver.Success || n == 0 {
		return r
	}
	to, ok := p.end(dst, n)
	from, ok2 := p.end(src, n)
	if !ok || !ok2 {
		p.misuse(fn, "%d bytes from %#x to %#x are not within allocations", n, src, dst)
		return driver.ErrorInvalidValue
	}
	if p.unreachable(fn, s, to, from) {
		return driver.ErrorInvalidValue
	}
	return p.copies(s, to, from)
}

// unreachable reports whether an end of a copy on s is in a pool that the copy
// has no access to. A real driver asks that of the calling thread's context,
// whatever the stream's is. Here the stream's stands in where there is none.
// Plain memory needs no access, and MemcpyPeerAsync none at all.
func (p *Process) unreachable(fn string, s *stream, ends ...end) bool {
	c := s.ctx
	if stack := p.thread(false).stack; len(stack) > 0 {
		c = p.primary(stack[len(stack)-1])
	}
	for _, e := range ends {
		if b := e.block; b != nil && b.chunk != nil && !p.reaches(c, b) {
			p.misuse(fn, "the context of device %d has no access to the pool of device %d", c.ordinal, b.ctx.ordinal)
			return true
		}
	}
	return false
}

func (p *Process) memcpyHtoDAsync(dst driver.DevicePtr, src unsafe.Pointer, n uint64, h driver.Stream) driver.Result {
	defer p.enter("MemcpyHtoDAsync", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("MemcpyHtoDAsync", h)
	if r != driver.Success || n == 0 {
		return r
	}
	to, ok := p.end(dst, n)
	from, ok2 := p.hostEnd(src, n)
	if !ok || !ok2 {
		p.misuse("MemcpyHtoDAsync", "%d bytes from %p to %#x are not within allocations", n, src, dst)
		return driver.ErrorInvalidValue
	}
	if p.unreachable("MemcpyHtoDAsync", s, to, from) {
		return driver.ErrorInvalidValue
	}
	return p.copies(s, to, from)
}

func (p *Process) memcpyDtoHAsync(dst unsafe.Pointer, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	defer p.enter("MemcpyDtoHAsync", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("MemcpyDtoHAsync", h)
	if r != driver.Success || n == 0 {
		return r
	}
	to, ok := p.hostEnd(dst, n)
	from, ok2 := p.end(src, n)
	if !ok || !ok2 {
		p.misuse("MemcpyDtoHAsync", "%d bytes from %#x to %p are not within allocations", n, src, dst)
		return driver.ErrorInvalidValue
	}
	if p.unreachable("MemcpyDtoHAsync", s, to, from) {
		return driver.ErrorInvalidValue
	}
	return p.copies(s, to, from)
}

func (p *Process) memcpyPeerAsync(dst driver.DevicePtr, dstCtx driver.Context, src driver.DevicePtr, srcCtx driver.Context, n uint64, h driver.Stream) driver.Result {
	defer p.enter("MemcpyPeerAsync", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("MemcpyPeerAsync", h)
	if r != driver.Success {
		return r
	}
	i, j := p.ordinal(dstCtx), p.ordinal(srcCtx)
	if i < 0 || j < 0 {
		p.misuse("MemcpyPeerAsync", "unknown context %#x or %#x", dstCtx, srcCtx)
		return driver.ErrorInvalidContext
	}
	if n == 0 {
		return driver.Success
	}
	to, ok := p.end(dst, n)
	from, ok2 := p.end(src, n)
	if !ok || !ok2 || to.device() != p.devices[i] || from.device() != p.devices[j] {
		p.misuse("MemcpyPeerAsync", "%d bytes from %#x to %#x are not within allocations of these devices", n, src, dst)
		return driver.ErrorInvalidValue
	}
	return p.copies(s, to, from)
}

// memset enqueues filling n times with a pattern.
func (p *Process) memset(fn string, dst driver.DevicePtr, pattern []byte, n uint64, h driver.Stream) driver.Result {
	defer p.enter(fn, h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, h)
	if r != driver.Success {
		return r
	}
	size := uint64(len(pattern))
	if uint64(dst)%size != 0 {
		p.misuse(fn, "%#x is not a multiple of %d", dst, size)
		return driver.ErrorInvalidValue
	}
	if n == 0 {
		return driver.Success
	}
	var to end
	if n <= 1<<60 {
		to, _ = p.end(dst, n*size)
	}
	if to.data == nil {
		p.misuse(fn, "%d times %d bytes at %#x are not within an allocation", n, size, dst)
		return driver.ErrorInvalidValue
	}
	if !p.reaches(s.ctx, to.block) {
		p.misuse(fn, "device %d has no access to %#x, which is memory of device %d", s.ctx.ordinal, dst, p.number(to.device()))
		return driver.ErrorInvalidValue
	}
	conf := &p.gpu.conf
	uses := []use{to.use(order.Write)}
	return s.enqueue(&op{
		what: "memset",
		task: s.task("fill"),
		dur:  int64(conf.moving(n*size, conf.DeviceBandwidth)),
		effect: func() []use {
			fill(to.data, pattern)
			return uses
		},
		visible: to.host(),
	})
}

func (p *Process) memsetD8Async(dst driver.DevicePtr, value uint8, n uint64, h driver.Stream) driver.Result {
	return p.memset("MemsetD8Async", dst, []byte{value}, n, h)
}

func (p *Process) memsetD16Async(dst driver.DevicePtr, value uint16, n uint64, h driver.Stream) driver.Result {
	return p.memset("MemsetD16Async", dst, binary.NativeEndian.AppendUint16(nil, value), n, h)
}

func (p *Process) memsetD32Async(dst driver.DevicePtr, value uint32, n uint64, h driver.Stream) driver.Result {
	return p.memset("MemsetD32Async", dst, binary.NativeEndian.AppendUint32(nil, value), n, h)
}

// wordAt finds the aligned word at addr.
func (p *Process) wordAt(fn string, addr driver.DevicePtr) (end, bool) {
	at, ok := p.end(addr, 4)
	if addr%4 != 0 || !ok || at.block.chunk != nil {
		p.misuse(fn, "no aligned word at %#x, or one of a memory pool", addr)
		return end{}, false
	}
	return at, true
}

func (p *Process) streamWaitValue32(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
	defer p.enter("StreamWaitValue32", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamWaitValue32", h)
	if r != driver.Success {
		return r
	}
	at, ok := p.wordAt("StreamWaitValue32", addr)
	if !ok || flags > driver.StreamWaitValueNOR {
		return driver.ErrorInvalidValue
	}
	return s.enqueue(&op{kind: valueOp, word: word32(at.data), waits: at.use(order.Read), value: value, flags: flags})
}

func (p *Process) streamWriteValue32(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
	defer p.enter("StreamWriteValue32", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamWriteValue32", h)
	if r != driver.Success {
		return r
	}
	at, ok := p.wordAt("StreamWriteValue32", addr)
	if !ok || flags != 0 {
		return driver.ErrorInvalidValue
	}
	w, uses := word32(at.data), []use{at.use(order.Atomic)}
	return s.enqueue(&op{
		task: s.task("WriteValue"),
		effect: func() []use {
			atomic.StoreUint32(w, value)
			return uses
		},
		visible: at.host(),
	})
}
