package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Copy enqueues on s a copy of all elements of src to dst, which must have the
// same length (cuMemcpyAsync). Host to device, device to host, device to device
// and from one device to another are all the same call. It returns at once:
// neither memory may be touched, and no stream that is not ordered after may
// use dst, until the copy is done.
func Copy[T Element](s *Stream, dst, src Memory[T]) error {
	const op = "copy"
	if dst == nil || src == nil {
		return invalid(op, "the memory is nil")
	}
	to, err := dst.hold(op)
	if err != nil {
		return err
	}
	defer to.release()
	from, err := src.hold(op)
	if err != nil {
		return err
	}
	defer from.release()
	if dst.Len() != src.Len() {
		return invalid(op, fmt.Sprintf("the destination has %d elements, the source %d", dst.Len(), src.Len()))
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	api := s.dev.driver.api
	if to.dev.driver != s.dev.driver || from.dev.driver != s.dev.driver {
		return twoDrivers(op)
	}
	bytes := uint64(src.Len()) * uint64(unsafe.Sizeof(*new(T)))
	return check(op, s.call(func(st driver.Stream) driver.Result {
		return api.MemcpyAsync(driver.DevicePtr(to.native), driver.DevicePtr(from.native), bytes, st)
	}))
}

// Fill enqueues on s the setting of all elements of dst to v
// (cuMemsetD8Async, D16, D32). It returns at once. Elements of 8 and 16 bytes
// can only be set to values whose 4-byte words are all the same, such as 0;
// others match errors.ErrUnsupported.
func Fill[T Element](s *Stream, dst *Buffer[T], v T) error {
	const op = "fill"
	h, err := dst.hold(op)
	if err != nil {
		return err
	}
	defer h.release()
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	api := s.dev.driver.api
	if h.dev.driver != s.dev.driver {
		return twoDrivers(op)
	}
	p, n := driver.DevicePtr(h.native), uint64(dst.n)
	var set func(driver.Stream) driver.Result
	switch size := unsafe.Sizeof(v); size {
	case 1:
		bits := *(*uint8)(unsafe.Pointer(&v))
		set = func(st driver.Stream) driver.Result { return api.MemsetD8Async(p, bits, n, st) }
	case 2:
		bits := *(*uint16)(unsafe.Pointer(&v))
		set = func(st driver.Stream) driver.Result { return api.MemsetD16Async(p, bits, n, st) }
	default:
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&v)), size/4)
		for _, w := range words {
			if w != words[0] {
				return &Error{Op: op, Err: errors.ErrUnsupported,
					Detail: fmt.Sprintf("the driver sets at most 4 bytes at a time, and the words of %v differ", v)}
			}
		}
		bits := words[0]
		set = func(st driver.Stream) driver.Result { return api.MemsetD32Async(p, bits, n*uint64(len(words)), st) }
	}
	return check(op, s.call(set))
}
