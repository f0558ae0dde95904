package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Buffer is device memory for a number of elements, or a part of such memory
// (see [Buffer.Range] and [View]). Any number of goroutines may share it; the
// order of what they do with it is the streams' matter.
type Buffer[T Element] struct {
	h       *handle
	at      driver.DevicePtr
	n       int
	of      any // the buffer that this is a part of: it must not be collected before this
	cleanup runtime.Cleanup
}

// Alloc allocates device memory for n elements of type T (cuMemAlloc). Its
// contents are undefined. Such memory can be shared with other processes, and any
// stream may use it; but Close waits for the device. For memory that comes and
// goes with the work of a stream there is [AllocAsync].
func Alloc[T Element](d *Device, n int) (*Buffer[T], error) {
	const op = "buffer alloc"
	bytes, err := sizeOf[T](op, d, n)
	if err != nil {
		return nil, err
	}
	h, err := d.allocPlain(op, bytes)
	if err != nil {
		return nil, err
	}
	h.mem = &h.memory
	h.mem.plain = d
	return newBuffer[T](h, n), nil
}

// AllocAsync allocates device memory for n elements of type T from the device's
// memory pool, in the order of s, which becomes the buffer's home
// (cuMemAllocFromPoolAsync). It returns at once, and costs little more than
// enqueueing work. The contents are undefined. Until s has come to the allocation
// other streams must not use the buffer: make them wait for s.
//
// Close gives the memory back in the order of s, after all streams that used the
// buffer: what this package enqueues is noted by itself, for uses that it cannot
// see there is [Buffer.RecordStream].
//
// On a device without memory pools it is allocated as by [Alloc], and freed by
// the library when it is no longer used. s cannot be capturing ([ErrCapturing]).
func AllocAsync[T Element](s *Stream, n int) (*Buffer[T], error) {
	const op = "buffer alloc"
	if err := s.acquire(op); err != nil {
		return nil, err
	}
	defer s.h.release()
	bytes, err := sizeOf[T](op, s.dev, n)
	if err != nil {
		return nil, err
	}
	if err := s.notCapturing(op, true); err != nil {
		return nil, err
	}
	h, err := s.allocPool(op, bytes)
	if err != nil {
		return nil, err
	}
	h.mem = h.memory.begin(s)
	return newBuffer[T](h, n), nil
}

func (d *Device) allocPlain(op string, bytes uint64) (*handle, error) {
	var p driver.DevicePtr
	alloc := func(api *driver.API) (r driver.Result) {
		p, r = api.MemAlloc(bytes)
		return r
	}
	r := d.driver.relaxed(func() driver.Result { return d.bound(alloc) })
	if r == driver.ErrorOutOfMemory && d.pool.Load() != nil {
		if d.pool.Load().Trim(0) == nil { // what the pool keeps for later is in the way now
			r = d.driver.relaxed(func() driver.Result { return d.bound(alloc) })
		}
	}
	if r != driver.Success {
		return nil, &Error{Op: op, Code: r, Detail: fmt.Sprintf("%d bytes on device %d", bytes, d.index)}
	}
	return newHandle(d, kindBuffer, uint64(p)), nil
}

func (s *Stream) allocPool(op string, bytes uint64) (*handle, error) {
	d := s.dev
	pool, err := d.MemoryPool()
	if err != nil {
		if pool == nil && isUnsupported(err) {
			return d.allocPlain(op, bytes)
		}
		return nil, err
	}
	var p driver.DevicePtr
	r := d.driver.undisturbed(func() driver.Result {
		return s.call(func(api *driver.API, h driver.Stream) (r driver.Result) {
			p, r = api.MemAllocFromPoolAsync(bytes, pool.native, h)
			return r
		})
	})
	if r != driver.Success {
		return nil, &Error{Op: op, Code: r, Detail: fmt.Sprintf("%d bytes from the pool of device %d", bytes, d.index)}
	}
	return newHandle(d, kindPoolBuffer, uint64(p)), nil
}

func newBuffer[T Element](h *handle, n int) *Buffer[T] {
	b := &Buffer[T]{h: h, at: driver.DevicePtr(h.native), n: n}
	b.cleanup = runtime.AddCleanup(b, (*handle).forget, h)
	return b
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
	if b == nil || b.h == nil {
		return nil
	}
	return b.h.dev
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
	if b == nil || b.h == nil {
		return nil, invalid(op, "the buffer is nil")
	}
	if b.h.closed() {
		return nil, closed(op, b.h.String())
	}
	if err := checkRange(op, from, to, b.n); err != nil {
		return nil, err
	}
	size := unsafe.Sizeof(*new(T))
	return &Buffer[T]{h: b.h, at: b.at + driver.DevicePtr(uintptr(from)*size), n: to - from, of: b}, nil
}

// View returns the memory of b as elements of another type. Its address must be
// a multiple of their size and its bytes a whole number of them. As of a
// [Buffer.Range], the life is b's.
func View[U, T Element](b *Buffer[T]) (*Buffer[U], error) {
	const op = "buffer view"
	if b == nil || b.h == nil {
		return nil, invalid(op, "the buffer is nil")
	}
	if b.h.closed() {
		return nil, closed(op, b.h.String())
	}
	size := uint64(unsafe.Sizeof(*new(U)))
	if b.bytes()%size != 0 || uint64(b.at)%size != 0 {
		return nil, invalid(op, fmt.Sprintf("%d bytes at %#x are not elements of %d bytes", b.bytes(), uint64(b.at), size))
	}
	return &Buffer[U]{h: b.h, at: b.at, n: int(b.bytes() / size), of: b}, nil
}

// RecordStream notes that work on s uses the buffer which this package did not
// enqueue: kernels of other libraries, or calls of the driver's own functions.
// Call it after that work was enqueued. Then the memory is not given back before
// s is done with what it has been given.
func (b *Buffer[T]) RecordStream(s *Stream) error { return recordStream(b, s) }

// Close frees the memory. Memory of [AllocAsync] is freed in the order of its
// home stream, after its uses on other streams (cuMemFreeAsync); Close does not
// wait. For memory of [Alloc] it blocks until the device is idle (cuMemFree). In
// a graph the memory is kept until the graph is closed. Closing again, and closing
// a range or a view, is nil and does nothing.
func (b *Buffer[T]) Close() error {
	if b == nil || b.h == nil || b.of != nil {
		return nil
	}
	b.cleanup.Stop()
	return check("buffer close", b.h.close())
}

func (b *Buffer[T]) hold(op string) (*handle, driver.DevicePtr, error) {
	if b == nil {
		return nil, 0, invalid(op, "the buffer is nil")
	}
	err := holdMemory(op, b.h)
	runtime.KeepAlive(b) // until then a collected b would close h
	return b.h, b.at, err
}

func (b *Buffer[T]) bytes() uint64 { return uint64(b.n) * uint64(unsafe.Sizeof(*new(T))) }

func (b *Buffer[T]) element(T) {}
