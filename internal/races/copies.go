package races

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

func (d *detector) wrapCopies(api *driver.API) {
	// A copy to or from pageable memory may block its caller until it is done. After one to
	// memory that is not known the host has waited, unless that is a device's.
	copied := func(h driver.Stream, dst, src, n uint64, toDevice bool, call func() driver.Result) driver.Result {
		to, from := d.use(dst, n, order.Write), d.use(src, n, order.Read)
		s := d.stream(h)
		o := &operation{task: &Task{What: "copy", Stream: s, At: callsite.Caller()}, uses: append(to, from...)}
		if n == 0 || to != nil && from != nil {
			return d.put(s, o, call)
		}
		var at order.Point
		o.run = func(s *order.Sequence) order.Point {
			at = s.Next()
			return at
		}
		r := d.putEarly(s, o, call)
		if r == driver.Success && to == nil && !toDevice {
			d.mu.Lock()
			defer d.unlock()
			d.hostWaited(at)
		}
		return r
	}
	host := func(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }
	api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
		return copied(s, uint64(dst), uint64(src), n, false, func() driver.Result { return d.api.MemcpyAsync(dst, src, n, s) })
	}
	api.MemcpyHtoDAsync = func(dst driver.DevicePtr, src unsafe.Pointer, n uint64, s driver.Stream) driver.Result {
		return copied(s, uint64(dst), host(src), n, true, func() driver.Result { return d.api.MemcpyHtoDAsync(dst, src, n, s) })
	}
	api.MemcpyDtoHAsync = func(dst unsafe.Pointer, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
		return copied(s, host(dst), uint64(src), n, false, func() driver.Result { return d.api.MemcpyDtoHAsync(dst, src, n, s) })
	}
	api.MemcpyDtoDAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
		return copied(s, uint64(dst), uint64(src), n, true, func() driver.Result { return d.api.MemcpyDtoDAsync(dst, src, n, s) })
	}
	api.MemcpyPeerAsync = func(dst driver.DevicePtr, dstCtx driver.Context, src driver.DevicePtr, srcCtx driver.Context, n uint64, s driver.Stream) driver.Result {
		return copied(s, uint64(dst), uint64(src), n, true, func() driver.Result { return d.api.MemcpyPeerAsync(dst, dstCtx, src, srcCtx, n, s) })
	}
	api.Memcpy2DAsync = func(c driver.Memcpy2D, s driver.Stream) driver.Result {
		uses := append(d.rows(uint64(c.DstDevice)+c.DstY*c.DstPitch+c.DstXInBytes, c.DstPitch, &c, order.Write),
			d.rows(uint64(c.SrcDevice)+c.SrcY*c.SrcPitch+c.SrcXInBytes, c.SrcPitch, &c, order.Read)...)
		return d.enqueue(s, "copy", uses, func() driver.Result { return d.api.Memcpy2DAsync(c, s) })
	}
	set := func(h driver.Stream, dst driver.DevicePtr, bytes uint64, call func() driver.Result) driver.Result {
		return d.enqueue(h, "fill", d.use(uint64(dst), bytes, order.Write), call)
	}
	api.MemsetD8Async = func(dst driver.DevicePtr, v uint8, n uint64, s driver.Stream) driver.Result {
		return set(s, dst, n, func() driver.Result { return d.api.MemsetD8Async(dst, v, n, s) })
	}
	api.MemsetD16Async = func(dst driver.DevicePtr, v uint16, n uint64, s driver.Stream) driver.Result {
		return set(s, dst, 2*n, func() driver.Result { return d.api.MemsetD16Async(dst, v, n, s) })
	}
	api.MemsetD32Async = func(dst driver.DevicePtr, v uint32, n uint64, s driver.Stream) driver.Result {
		return set(s, dst, 4*n, func() driver.Result { return d.api.MemsetD32Async(dst, v, n, s) })
	}
}

// rows describes the rows of a copy, which begin pitch bytes apart.
func (d *detector) rows(at, pitch uint64, c *driver.Memcpy2D, kind order.Kind) (uses []use) {
	if pitch == c.WidthInBytes {
		return d.use(at, pitch*c.Height, kind)
	}
	for row := range c.Height {
		uses = append(uses, d.use(at+row*pitch, c.WidthInBytes, kind)...)
	}
	return uses
}
