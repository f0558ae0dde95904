package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Copy enqueues on s a copy of all elements of src to dst, which must have the
// same length (cuMemcpyAsync). Host to device, device to host, device to device
// and from one device to another are all the same call. It returns at once:
// neither memory may be touched, and no stream that is not ordered after may
// use dst, until the copy is done. Copy parts by [Buffer.Range], rows of a matrix
// by [Copy2D], and Go's own slices by [CopyFromSlice] and [CopyToSlice].
//
// A copy between two devices, of which neither has access to the other's memory
// ([Device.EnablePeerAccess]), goes through the host, and the call blocks
// meanwhile (cuMemcpyPeerAsync); in a capture it is refused. A copy from host
// memory to host memory is done by the host itself: the call may block until the
// stream has come to it.
func Copy[T Element](s *Stream, dst, src Memory[T]) error {
	const op = "copy"
	if !s.usable() || dst == nil || src == nil {
		return nilCopy(op, s)
	}
	to, toAt, bytes := dst.memory()
	from, fromAt, has := src.memory()
	if to == nil || from == nil || bytes != has {
		return badCopy(op, to == nil || from == nil, dst, src)
	}
	err := s.native.Copy(to, from, toAt, fromAt, bytes)
	runtime.KeepAlive(s)
	if err != nil {
		return failed(op, err)
	}
	return nil
}

func nilCopy(op string, s *Stream) error {
	if !s.usable() {
		return nilStream(op)
	}
	return invalid(op, "the memory is nil")
}

func badCopy(op string, missing bool, dst, src interface{ Len() int }) error {
	if missing {
		return invalid(op, "the buffer is nil, or was not allocated")
	}
	return invalid(op, fmt.Sprintf("the destination has %d elements, the source %d", dst.Len(), src.Len()))
}

// Copy2D enqueues on s a copy of rows rows of width elements each
// (cuMemcpy2DAsync): row i begins at element i*pitch of its memory, with the
// pitches of the two, in elements, both at least width. The elements between the
// rows are not touched. A row or column further on is a [Buffer.Range] that begins
// there. In all else it is as [Copy], but both memories must be of one device or
// of the host, unless the devices have access to each other.
func Copy2D[T Element](s *Stream, dst Memory[T], dstPitch int, src Memory[T], srcPitch, width, rows int) error {
	const op = "copy 2d"
	if !s.usable() || dst == nil || src == nil {
		return nilCopy(op, s)
	}
	to, toAt, _ := dst.memory()
	from, fromAt, _ := src.memory()
	if to == nil || from == nil {
		return badCopy(op, true, dst, src)
	}
	if err := checkRows(op, "destination", dst.Len(), dstPitch, width, rows); err != nil {
		return err
	}
	if err := checkRows(op, "source", src.Len(), srcPitch, width, rows); err != nil {
		return err
	}
	size := uint64(unsafe.Sizeof(*new(T)))
	c := driver.Memcpy2D{
		SrcMemoryType: driver.MemoryUnified, SrcDevice: fromAt, SrcPitch: uint64(srcPitch) * size,
		DstMemoryType: driver.MemoryUnified, DstDevice: toAt, DstPitch: uint64(dstPitch) * size,
		WidthInBytes: uint64(width) * size, Height: uint64(rows),
	}
	err := s.native.Copy2D(to, from, c)
	runtime.KeepAlive(s)
	return failed(op, err)
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
