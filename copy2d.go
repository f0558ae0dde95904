package cuda

import (
	"fmt"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Copy2D enqueues on s a copy of rows rows of width elements each
// (cuMemcpy2DAsync): row i begins at element i*pitch of its memory, with the
// pitches of the two, in elements, both at least width. The elements between the
// rows are not touched. A row or column further on is a [Buffer.Range] that begins
// there. In all else it is as [Copy], but both memories must be of one device or
// of the host, unless the devices have access to each other.
func Copy2D[T Element](s *Stream, dst Memory[T], dstPitch int, src Memory[T], srcPitch, width, rows int) error {
	const op = "copy 2d"
	p, err := holdPair(op, s, dst, src)
	if err != nil {
		return err
	}
	defer p.release(s)
	if err := checkRows(op, "destination", dst.Len(), dstPitch, width, rows); err != nil {
		return err
	}
	if err := checkRows(op, "source", src.Len(), srcPitch, width, rows); err != nil {
		return err
	}
	size := uint64(unsafe.Sizeof(*new(T)))
	c := driver.Memcpy2D{
		SrcMemoryType: driver.MemoryUnified, SrcDevice: p.fromAt, SrcPitch: uint64(srcPitch) * size,
		DstMemoryType: driver.MemoryUnified, DstDevice: p.toAt, DstPitch: uint64(dstPitch) * size,
		WidthInBytes: uint64(width) * size, Height: uint64(rows),
	}
	in := s.capture()
	r := s.callFor(p.to, p.from, func(api *driver.API, st driver.Stream) driver.Result { return api.Memcpy2DAsync(c, st) })
	if r == driver.Success {
		p.to.usedOn(s, in)
		p.from.usedOn(s, in)
	}
	return check(op, r)
}

// checkRows checks that rows lie within n elements.
func checkRows(op, which string, n, pitch, width, rows int) error {
	switch {
	case width < 0 || rows < 0 || pitch < width:
		return invalid(op, fmt.Sprintf("%d rows of %d elements with a pitch of %d in the %s", rows, width, pitch, which))
	case rows == 0 || width == 0:
		return nil
	case width > n || (n-width)/max(pitch, 1) < rows-1:
		return invalid(op, fmt.Sprintf("the %s has %d elements, too few for %d rows of %d with a pitch of %d", which, n, rows, width, pitch))
	}
	return nil
}
