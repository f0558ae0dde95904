package cudatest

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// end is one end of a copy.
type end struct {
	data  []byte
	block *block // nil for pageable host memory
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
	return end{data, b}, data != nil
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

// copies enqueues a copy on s. Pageable memory is read at once, as the driver
// may; when such memory is written the call returns after that.
func (p *Process) copies(s *stream, dst, src end) driver.Result {
	conf := &p.gpu.conf
	n := uint64(len(src.data))
	d := conf.moving(n, conf.HostBandwidth)
	if to, from := dst.device(), src.device(); to != nil && to == from {
		d = conf.moving(n, conf.DeviceBandwidth)
	} else if to != nil && from != nil {
		d = conf.moving(n, conf.PeerBandwidth)
	}
	to, from := dst.data, src.data
	if src.block == nil && s.capture == nil {
		from = append([]byte(nil), from...)
	}
	o := &op{dur: int64(d), effect: func() { copy(to, from) }, visible: dst.host()}
	r := s.enqueue(o)
	if r != driver.Success || dst.block != nil || s.capture != nil {
		return r
	}
	p.gpu.await(s.ctx, o)
	return s.ctx.answer()
}

func (p *Process) memcpyAsync(dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	return p.unified("MemcpyAsync", dst, src, n, h)
}

func (p *Process) memcpyDtoDAsync(dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
	return p.unified("MemcpyDtoDAsync", dst, src, n, h)
}

func (p *Process) unified(fn string, dst, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
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
	return p.copies(s, to, from)
}

func (p *Process) memcpyHtoDAsync(dst driver.DevicePtr, src unsafe.Pointer, n uint64, h driver.Stream) driver.Result {
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
	return p.copies(s, to, from)
}

func (p *Process) memcpyDtoHAsync(dst unsafe.Pointer, src driver.DevicePtr, n uint64, h driver.Stream) driver.Result {
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
	return p.copies(s, to, from)
}

func (p *Process) memcpyPeerAsync(dst driver.DevicePtr, dstCtx driver.Context, src driver.DevicePtr, srcCtx driver.Context, n uint64, h driver.Stream) driver.Result {
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
	if !ok || !ok2 || to.device() != p.gpu.devices[i] || from.device() != p.gpu.devices[j] {
		p.misuse("MemcpyPeerAsync", "%d bytes from %#x to %#x are not within allocations of these devices", n, src, dst)
		return driver.ErrorInvalidValue
	}
	return p.copies(s, to, from)
}

// memset enqueues filling n times with a pattern.
func (p *Process) memset(fn string, dst driver.DevicePtr, pattern []byte, n uint64, h driver.Stream) driver.Result {
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
	conf := &p.gpu.conf
	return s.enqueue(&op{
		dur:     int64(conf.moving(n*size, conf.DeviceBandwidth)),
		effect:  func() { fill(to.data, pattern) },
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
func (p *Process) wordAt(fn string, addr driver.DevicePtr) (w *uint32, host bool) {
	at, ok := p.end(addr, 4)
	if addr%4 != 0 || !ok {
		p.misuse(fn, "no aligned word at %#x", addr)
		return nil, false
	}
	return word32(at.data), at.host()
}

func (p *Process) streamWaitValue32(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamWaitValue32", h)
	if r != driver.Success {
		return r
	}
	w, _ := p.wordAt("StreamWaitValue32", addr)
	if w == nil || flags > driver.StreamWaitValueNOR {
		return driver.ErrorInvalidValue
	}
	return s.enqueue(&op{kind: valueOp, word: w, value: value, flags: flags})
}

func (p *Process) streamWriteValue32(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamWriteValue32", h)
	if r != driver.Success {
		return r
	}
	w, host := p.wordAt("StreamWriteValue32", addr)
	if w == nil || flags != 0 {
		return driver.ErrorInvalidValue
	}
	return s.enqueue(&op{effect: func() { atomic.StoreUint32(w, value) }, visible: host})
}
