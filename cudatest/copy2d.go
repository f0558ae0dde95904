package cudatest

import (
	"math/bits"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// memcpy2DAsync takes unified addresses only: what the library passes.
func (p *Process) memcpy2DAsync(c driver.Memcpy2D, h driver.Stream) driver.Result {
	const fn = "Memcpy2DAsync"
	defer p.enter(fn, h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, h)
	switch {
	case r != driver.Success:
		return r
	case c.SrcMemoryType != driver.MemoryUnified, c.DstMemoryType != driver.MemoryUnified:
		return driver.ErrorInvalidValue
	case c.WidthInBytes == 0 || c.Height == 0:
		return driver.Success
	case !wide(c.SrcPitch, c.SrcXInBytes, c), !wide(c.DstPitch, c.DstXInBytes, c):
		return driver.ErrorInvalidValue
	}
	to, ok := p.rectangle(c.DstDevice, c.DstXInBytes, c.DstY, c.DstPitch, c.WidthInBytes, c.Height)
	from, ok2 := p.rectangle(c.SrcDevice, c.SrcXInBytes, c.SrcY, c.SrcPitch, c.WidthInBytes, c.Height)
	if !ok || !ok2 {
		p.misuse(fn, "%d rows of %d bytes from %#x to %#x are not within allocations", c.Height, c.WidthInBytes, c.SrcDevice, c.DstDevice)
		return driver.ErrorInvalidValue
	}
	if p.unreachable(fn, s, to, from) {
		return driver.ErrorInvalidValue
	}
	width := c.WidthInBytes
	uses := append(from.rows(c.Height, c.SrcPitch, width, order.Read), to.rows(c.Height, c.DstPitch, width, order.Write)...)
	return s.enqueue(&op{
		what: "memcpy",
		task: s.task("copy"),
		dur:  int64(p.gpu.moves(c.Height*width, to, from)),
		effect: func() []use {
			for row := range c.Height {
				copy(to.data[row*c.DstPitch:][:width], from.data[row*c.SrcPitch:][:width])
			}
			return uses
		},
		visible: to.host(),
	})
}

// wide reports whether a pitch has room for the rows of c, which begin at x. One
// row needs no pitch. (A real driver takes pitch 0 for more rows too, which is
// not documented.)
func wide(pitch, x uint64, c driver.Memcpy2D) bool {
	return pitch == 0 && c.Height == 1 || x <= pitch && c.WidthInBytes <= pitch-x
}

// rectangle finds the bytes from the first row's first at (x, y) of an array in
// memory to the last row's last. They must all be in one allocation.
func (p *Process) rectangle(base driver.DevicePtr, x, y, pitch, width, height uint64) (end, bool) {
	over, skip := bits.Mul64(y, pitch)
	over2, rows := bits.Mul64(height-1, pitch)
	at := uint64(base) + skip + x
	if over != 0 || over2 != 0 || at < uint64(base) || skip+x < skip || rows+width < rows {
		return end{}, false
	}
	return p.end(driver.DevicePtr(at), rows+width)
}

// rows describes the bytes of e's rows, each of width bytes, which begin pitch bytes apart.
func (e end) rows(height, pitch, width uint64, kind order.Kind) (uses []use) {
	if pitch == width {
		return []use{e.use(kind)}
	}
	for row := range height {
		uses = append(uses, e.part(row*pitch, width).use(kind))
	}
	return uses
}
