package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Element is what buffers are made of: the fixed-size numbers, which look the
// same to the host and to the device and hold no Go pointers.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Memory is a [Buffer] or a [HostBuffer].
type Memory[T Element] interface {
	// Len returns the number of elements.
	Len() int
	anyMemory
	element(T) // lets the compiler infer T
}

// anyMemory is a buffer of any element type.
type anyMemory interface {
	// hold returns the allocation, which the caller releases, and the device
	// address of the first element.
	hold(op string) (*handle, driver.DevicePtr, error)
	bytes() uint64
}

// holdMemory takes a reference to an allocation for a call.
func holdMemory(op string, h *handle) error {
	if h == nil {
		return invalid(op, "the buffer was not allocated")
	}
	if !h.acquire() {
		return closed(op, h.String())
	}
	return nil
}

// recordStream is the RecordStream of every kind of memory.
func recordStream(m anyMemory, s *Stream) error {
	const op = "record stream"
	h, _, err := m.hold(op)
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
	h.usedOn(s, s.capture())
	return nil
}

// sizeOf returns the bytes of n elements.
func sizeOf[T Element](op string, d *Device, n int) (uint64, error) {
	if err := d.usable(op); err != nil {
		return 0, err
	}
	size := int(unsafe.Sizeof(*new(T)))
	if n <= 0 || n > math.MaxInt/size {
		return 0, invalid(op, fmt.Sprintf("%d elements of %d bytes", n, size))
	}
	return uint64(n) * uint64(size), nil
}

// checkRange checks the bounds of a part of n elements.
func checkRange(op string, from, to, n int) error {
	if from < 0 || from > to || to > n {
		return invalid(op, fmt.Sprintf("elements %d to %d of %d", from, to, n))
	}
	return nil
}
