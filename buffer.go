package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Buffer is device memory for a number of elements, or a part of such memory
// (see [Buffer.Range] and [View]). Any number of goroutines may share it; only streams and
// events order what they do with it.
type Buffer[T Element] struct {
	m    *native.Memory
	at   driver.DevicePtr
	n    int
	part bool // of another: closing it does nothing
}

// Alloc allocates device memory for n elements of type T (cuMemAlloc). Its
// contents are undefined. Such memory can be shared with other processes, and any
// stream may use it; but Close waits for the device. For memory that comes and
// goes with the work of a stream there is [AllocAsync]. If there is not enough memory,
// Alloc waits as AllocAsync does, and trims the device's pool, before it fails.
func Alloc[T Element](d *Device, n int) (*Buffer[T], error) {
	const op = "buffer alloc"
	bytes, err := sizeOf[T](op, d, n)
	if err != nil {
		return nil, err
	}
	m, err := d.native.AllocPlain(bytes)
	if err != nil {
		return nil, allocFailed(op, err, bytes)
	}
	return newBuffer[T](m, n), nil
}

// allocFailed adds to an error how much memory was asked for.
func allocFailed(op string, err error, bytes uint64) error {
	e := failed(op, err).(*Error)
	if e.Detail == "" {
		e.Detail = fmt.Sprintf("%d bytes", bytes)
	}
	return e
}

// AllocAsync allocates device memory for n elements of type T from the device's
// memory pool, in the order of s, which becomes the buffer's home
// (cuMemAllocFromPoolAsync). It returns at once, and costs little more than
// enqueueing work. The contents are undefined. Until s has come to the allocation
// other streams must not use the buffer: make them wait for s.
//
// Close gives the memory back in the order of s, when all streams that used the
// buffer are done with it: what this package enqueues is noted by itself, for uses that
// it cannot see there is [Buffer.RecordStream].
//
// If there is not enough memory, AllocAsync waits until closed buffers are free that
// other streams still use, for a second at most, and tries once more. On a device
// without memory pools it allocates as [Alloc], and the library frees the memory when it
// is no longer used. s cannot be capturing ([ErrCapturing]).
func AllocAsync[T Element](s *Stream, n int) (*Buffer[T], error) {
	const op = "buffer alloc"
	if !s.usable() {
		return nil, nilStream(op)
	}
	bytes, err := sizeOf[T](op, s.dev, n)
	if err != nil {
		return nil, err
	}
	m, err := s.native.AllocAsync(bytes)
	runtime.KeepAlive(s)
	if err != nil {
		return nil, allocFailed(op, err, bytes)
	}
	return newBuffer[T](m, n), nil
}

func newBuffer[T Element](m *native.Memory, n int) *Buffer[T] {
	return &Buffer[T]{m: m, at: m.Addr, n: n}
}

// Len returns the number of elements.
func (b *Buffer[T]) Len() int {
	if b == nil {
		return 0
	}
	return b.n
}

// Device returns the buffer's device.
func (b *Buffer[T]) Device() *Device {
	if b == nil || b.m == nil {
		return nil
	}
	return deviceOf(b.m.Dev)
}

// Pointer returns the device address, for as long as b is open and reachable.
// The host cannot use it.
func (b *Buffer[T]) Pointer() driver.DevicePtr {
	if b == nil {
		return 0
	}
	return b.at
}

// Range returns the elements from to to-1 as a buffer of their own. It shares the
// memory and its life: it is closed when b is, and need not be closed.
func (b *Buffer[T]) Range(from, to int) (*Buffer[T], error) {
	const op = "buffer range"
	if b == nil || b.m == nil {
		return nil, invalid(op, "the buffer is nil")
	}
	if b.m.Closed() {
		return nil, closed(op, b.m.String())
	}
	if err := checkRange(op, from, to, b.n); err != nil {
		return nil, err
	}
	size := unsafe.Sizeof(*new(T))
	return &Buffer[T]{m: b.m, at: b.at + driver.DevicePtr(uintptr(from)*size), n: to - from, part: true}, nil
}

// View returns the memory of b as elements of another type. Its address must be
// a multiple of their size and its bytes a whole number of them. As of a
// [Buffer.Range], the life is b's.
func View[U, T Element](b *Buffer[T]) (*Buffer[U], error) {
	const op = "buffer view"
	if b == nil || b.m == nil {
		return nil, invalid(op, "the buffer is nil")
	}
	if b.m.Closed() {
		return nil, closed(op, b.m.String())
	}
	size := uint64(unsafe.Sizeof(*new(U)))
	if b.bytes()%size != 0 || uint64(b.at)%size != 0 {
		return nil, invalid(op, fmt.Sprintf("%d bytes at %#x are not elements of %d bytes", b.bytes(), uint64(b.at), size))
	}
	return &Buffer[U]{m: b.m, at: b.at, n: int(b.bytes() / size), part: true}, nil
}

// RecordStream notes that work on s, which this package did not enqueue, uses the
// buffer: kernels of other libraries, or calls of the driver's own functions.
// Call it after that work was enqueued. Then the memory is not given back before
// s is done with that work.
func (b *Buffer[T]) RecordStream(s *Stream) error { return recordStream(b, s) }

// Close frees the memory. Memory of [AllocAsync] is freed in the order of its home
// stream (cuMemFreeAsync), and neither Close nor any stream waits for that. If other
// streams have used it, and the home has not waited for them since, it stays in use
// until they have done what they had been given when Close was called; one of the next
// allocations on the same home frees it then, or the library in the background.
//
// For memory of [Alloc] Close blocks until the device is idle (cuMemFree), and streams
// of other devices have done their uses; a call on another goroutine that Close overtakes
// does so in its place. In a graph the memory is kept until the graph
// is closed. Closing again, and closing a range or a view, is nil and does nothing.
func (b *Buffer[T]) Close() error {
	if b == nil || b.m == nil || b.part {
		return nil
	}
	return failed("buffer close", b.m.Close())
}

func (b *Buffer[T]) memory() (*native.Memory, driver.DevicePtr, uint64) {
	if b == nil {
		return nil, 0, 0
	}
	return b.m, b.at, b.bytes()
}

func (b *Buffer[T]) bytes() uint64 { return uint64(b.n) * uint64(unsafe.Sizeof(*new(T))) }

func (b *Buffer[T]) element(T) {}
