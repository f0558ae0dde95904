package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
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
	// memory returns the allocation, nil if there is none, the device address of the first
	// element, and the length in bytes.
	memory() (m *native.Memory, at driver.DevicePtr, bytes uint64)
}

// span is memory of an argument, which may be missing.
func span(op string, b anyMemory) (m *native.Memory, at driver.DevicePtr, bytes uint64, err error) {
	if b == nil {
		return nil, 0, 0, invalid(op, "the memory is nil")
	}
	if m, at, bytes = b.memory(); m == nil {
		err = invalid(op, "the buffer is nil, or was not allocated")
	}
	return m, at, bytes, err
}

// recordStream is the RecordStream of every kind of memory.
func recordStream(b anyMemory, s *Stream) error {
	const op = "record stream"
	m, _, _, err := span(op, b)
	switch {
	case err != nil:
		return err
	case !s.usable():
		return nilStream(op)
	}
	err = m.RecordStream(s.native)
	runtime.KeepAlive(s)
	return failed(op, err)
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
