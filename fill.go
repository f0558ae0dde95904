package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Fill enqueues on s the setting of all elements of dst to v
// (cuMemsetD8Async, D16, D32). It returns at once. Elements of 8 and 16 bytes
// can only be set to values whose 4-byte words are all the same, such as 0;
// others match errors.ErrUnsupported.
func Fill[T Element](s *Stream, dst *Buffer[T], v T) error {
	const op = "fill"
	m, at, bytes, err := span(op, dst)
	switch {
	case err != nil:
		return err
	case !s.usable():
		return nilStream(op)
	}
	size := unsafe.Sizeof(v)
	var bits uint32
	switch size {
	case 1:
		bits = uint32(*(*uint8)(unsafe.Pointer(&v)))
	case 2:
		bits = uint32(*(*uint16)(unsafe.Pointer(&v)))
	default:
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&v)), size/4)
		for _, w := range words {
			if w != words[0] {
				return &Error{Op: op, Err: errors.ErrUnsupported,
					Detail: fmt.Sprintf("the driver sets at most 4 bytes at a time, and the words of %v differ", v)}
			}
		}
		bits, size = words[0], 4
	}
	err = s.native.Fill(m, at, size, bits, bytes/uint64(size))
	runtime.KeepAlive(s)
	if err != nil {
		return failed(op, err)
	}
	return nil
}
