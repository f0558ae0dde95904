package cuda

import (
	"fmt"
	"math"
	"runtime"
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
	hold(op string) (*handle, error)
	element(T) // lets the compiler infer T
}

// Buffer is device memory for n elements. Any number of goroutines may share
// it; the order of what they do with it is the streams' matter.
type Buffer[T Element] struct {
	h       *handle
	n       int
	cleanup runtime.Cleanup
}

// Alloc allocates device memory for n elements of type T (cuMemAlloc). Its
// contents are undefined. It may wait for the device.
func Alloc[T Element](d *Device, n int) (*Buffer[T], error) {
	const op = "buffer alloc"
	bytes, err := sizeOf[T](op, d, n)
	if err != nil {
		return nil, err
	}
	var p driver.DevicePtr
	r := d.bound(func() (r driver.Result) {
		p, r = d.driver.api.MemAlloc(bytes)
		return r
	})
	if r != driver.Success {
		return nil, &Error{Op: op, Code: r, Detail: fmt.Sprintf("%d bytes on device %d", bytes, d.index)}
	}
	b := &Buffer[T]{h: newHandle(d, kindBuffer, uint64(p)), n: n}
	b.cleanup = runtime.AddCleanup(b, (*handle).forget, b.h)
	return b, nil
}

// Len returns the number of elements.
func (b *Buffer[T]) Len() int { return b.n }

// Device returns the buffer's device.
func (b *Buffer[T]) Device() *Device { return b.h.dev }

// Pointer returns the device address, for as long as b is open and reachable.
// The host cannot use it.
func (b *Buffer[T]) Pointer() driver.DevicePtr { return driver.DevicePtr(b.h.native) }

// Close frees the memory (cuMemFree), after the device's work in flight: it
// blocks until the device is idle. Closing again is nil.
func (b *Buffer[T]) Close() error {
	if b == nil || b.h == nil {
		return nil
	}
	b.cleanup.Stop()
	return check("buffer close", b.h.close())
}

func (b *Buffer[T]) hold(op string) (*handle, error) {
	if b == nil {
		return nil, invalid(op, "the buffer is nil")
	}
	h, err := holdMemory(op, b.h)
	runtime.KeepAlive(b) // until then a collected b would close h
	return h, err
}

func (b *Buffer[T]) element(T) {}

// HostBuffer is pinned host memory for n elements: memory that the operating
// system never moves, so that devices read and write it by themselves while the
// host goes on. Pinning is slow and takes memory from the whole machine; make
// few and reuse them.
//
// The memory is not Go's. It lives until Close, and the garbage collector does
// not free it, because a slice of it may outlive the HostBuffer.
type HostBuffer[T Element] struct {
	h     *handle
	slice []T
}

// AllocHost allocates pinned host memory for n elements of type T, usable by
// all devices of d's driver (cuMemHostAlloc). Its contents are undefined.
func AllocHost[T Element](d *Device, n int) (*HostBuffer[T], error) {
	const op = "host buffer alloc"
	bytes, err := sizeOf[T](op, d, n)
	if err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	r := d.bound(func() (r driver.Result) {
		p, r = d.driver.api.MemHostAlloc(bytes, driver.MemHostAllocPortable)
		return r
	})
	if r != driver.Success {
		return nil, &Error{Op: op, Code: r, Detail: fmt.Sprintf("%d bytes", bytes)}
	}
	h := newHandle(d, kindHostBuffer, uint64(uintptr(p)))
	h.pointer = p
	return &HostBuffer[T]{h: h, slice: unsafe.Slice((*T)(p), n)}, nil
}

// Len returns the number of elements.
func (b *HostBuffer[T]) Len() int { return len(b.slice) }

// Slice returns the memory itself. It must not be used after Close, nor while
// a copy that reads or writes it is in flight.
func (b *HostBuffer[T]) Slice() []T { return b.slice }

// Close frees the memory (cuMemFreeHost). Slices of it are invalid from then
// on. Wait for the copies that use it first. Closing again is nil.
func (b *HostBuffer[T]) Close() error {
	if b == nil || b.h == nil {
		return nil
	}
	return check("host buffer close", b.h.close())
}

func (b *HostBuffer[T]) hold(op string) (*handle, error) {
	if b == nil {
		return nil, invalid(op, "the host buffer is nil")
	}
	return holdMemory(op, b.h)
}

func (b *HostBuffer[T]) element(T) {}

func holdMemory(op string, h *handle) (*handle, error) {
	if h == nil {
		return nil, invalid(op, "the buffer was not allocated")
	}
	if !h.acquire() {
		return nil, closed(op)
	}
	return h, nil
}

func sizeOf[T Element](op string, d *Device, n int) (uint64, error) {
	if d == nil {
		return 0, invalid(op, "the device is nil")
	}
	size := int(unsafe.Sizeof(*new(T)))
	if n <= 0 || n > math.MaxInt/size {
		return 0, invalid(op, fmt.Sprintf("%d elements of %d bytes", n, size))
	}
	return uint64(n) * uint64(size), nil
}
