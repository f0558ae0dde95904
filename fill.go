package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Fill enqueues on s the setting of all elements of dst to v
// (cuMemsetD8Async, D16, D32). It returns at once. Elements of 8 and 16 bytes
// can only be set to values whose 4-byte words are all the same, such as 0;
// others match errors.ErrUnsupported.
func Fill[T Element](s *Stream, dst *Buffer[T], v T) error {
	const op = "fill"
	h, p, err := dst.hold(op)
	if err != nil {
		return err
	}
	defer h.release()
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	if h.dev.driver != s.dev.driver {
		return twoDrivers(op)
	}
	n := uint64(dst.n)
	var set func(api *driver.API, h driver.Stream) driver.Result
	switch size := unsafe.Sizeof(v); size {
	case 1:
		bits := *(*uint8)(unsafe.Pointer(&v))
		set = func(api *driver.API, st driver.Stream) driver.Result { return api.MemsetD8Async(p, bits, n, st) }
	case 2:
		bits := *(*uint16)(unsafe.Pointer(&v))
		set = func(api *driver.API, st driver.Stream) driver.Result { return api.MemsetD16Async(p, bits, n, st) }
	default:
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&v)), size/4)
		for _, w := range words {
			if w != words[0] {
				return &Error{Op: op, Err: errors.ErrUnsupported,
					Detail: fmt.Sprintf("the driver sets at most 4 bytes at a time, and the words of %v differ", v)}
			}
		}
		bits := words[0]
		set = func(api *driver.API, st driver.Stream) driver.Result {
			return api.MemsetD32Async(p, bits, n*uint64(len(words)), st)
		}
	}
	in := s.capture()
	r := s.callFor(h, h, set)
	if r == driver.Success {
		h.usedOn(s, in)
	} else if r == driver.ErrorInvalidValue && h.dev != s.dev {
		return &Error{Op: op, Code: r, Detail: fmt.Sprintf("device %d has no access to the memory of device %d: see EnablePeerAccess", s.dev.index, h.dev.index)}
	}
	return check(op, r)
}
