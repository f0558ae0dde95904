package cuda

import (
	"fmt"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// HostBuffer is pinned host memory for a number of elements: memory that the
// operating system never moves, so that devices read and write it by themselves
// while the host goes on. Pinning is slow and takes memory from the whole
// machine; make few and reuse them.
//
// The memory is not Go's. It lives until Close, and the garbage collector does
// not free it, because a slice of it may outlive the HostBuffer.
type HostBuffer[T Element] struct {
	m     *native.Memory
	at    driver.DevicePtr
	slice []T
	part  bool // of another: closing it does nothing
}

// HostOptions say how host memory is pinned. The zero value is the recommended
// one.
type HostOptions struct {
	// WriteCombined memory bypasses the host's caches: devices read it faster on
	// some machines, and the host reads it very slowly. For memory that the host
	// only writes, in order.
	WriteCombined bool
	// OneDevice pins the memory for the device alone, instead of for all devices of
	// its driver.
	OneDevice bool
}

// AllocHost allocates pinned host memory for n elements of type T, usable by
// all devices of d's driver (cuMemHostAlloc). Its contents are undefined. A nil
// opts means the defaults. The time grows with the size, and is much
// longer than that of [AllocAsync].
func AllocHost[T Element](d *Device, n int, opts *HostOptions) (*HostBuffer[T], error) {
	const op = "host buffer alloc"
	bytes, err := sizeOf[T](op, d, n)
	if err != nil {
		return nil, err
	}
	if opts == nil {
		opts = &HostOptions{}
	}
	var flags uint32 // devices see all host memory, asked for or not
	if !opts.OneDevice {
		flags |= driver.MemHostAllocPortable
	}
	if opts.WriteCombined {
		flags |= driver.MemHostAllocWriteCombined
	}
	m, err := d.native.AllocHost(bytes, flags)
	if err != nil {
		return nil, allocFailed(op, err, bytes)
	}
	return newHostBuffer(m, unsafe.Slice((*T)(m.Host()), n)), nil
}

// RegisterHost pins memory that already exists, such as that of mmap, so that
// devices use it as that of [AllocHost] (cuMemHostRegister). It must be writable,
// not be pinned already, stay where it is until Close, and must not be Go's own:
// not a slice made by make, since the garbage collector knows nothing of the
// device. Linux does not pin shared mappings of files on a disk: there, map
// privately, or take a file in memory (memfd_create, /dev/shm). Close unpins it
// and frees nothing. The time grows with the size.
func RegisterHost[T Element](d *Device, memory []T) (*HostBuffer[T], error) {
	const op = "host memory register"
	bytes, err := sizeOf[T](op, d, len(memory))
	if err != nil {
		return nil, err
	}
	p := unsafe.Pointer(unsafe.SliceData(memory))
	m, err := d.native.RegisterHost(p, bytes)
	if err != nil {
		e := failed(op, err).(*Error)
		e.Detail = joinDetails(fmt.Sprintf("%d bytes at %p", bytes, p), e.Detail)
		return nil, e
	}
	return newHostBuffer(m, memory), nil
}

func newHostBuffer[T Element](m *native.Memory, slice []T) *HostBuffer[T] {
	return &HostBuffer[T]{m: m, at: m.Addr, slice: slice}
}

// Len returns the number of elements.
func (b *HostBuffer[T]) Len() int { return len(b.Slice()) }

// Slice returns the memory itself. It must not be used after Close, nor while
// a copy that reads or writes it is in flight.
func (b *HostBuffer[T]) Slice() []T {
	if b == nil {
		return nil
	}
	return b.slice
}

// Pointer returns the address by which devices use the memory.
func (b *HostBuffer[T]) Pointer() driver.DevicePtr {
	if b == nil {
		return 0
	}
	return b.at
}

// Range returns the elements from to to-1 as a buffer of their own, which shares
// the memory and is closed when b is.
func (b *HostBuffer[T]) Range(from, to int) (*HostBuffer[T], error) {
	const op = "host buffer range"
	if b == nil || b.m == nil {
		return nil, invalid(op, "the host buffer is nil")
	}
	if b.m.Closed() {
		return nil, closed(op, b.m.String())
	}
	if err := checkRange(op, from, to, len(b.slice)); err != nil {
		return nil, err
	}
	size := unsafe.Sizeof(*new(T))
	return &HostBuffer[T]{m: b.m, at: b.at + driver.DevicePtr(uintptr(from)*size), slice: b.slice[from:to:to], part: true}, nil
}

// RecordStream notes that work on s uses the memory which this package did not
// enqueue; see [Buffer.RecordStream].
func (b *HostBuffer[T]) RecordStream(s *Stream) error { return recordStream(b, s) }

// AfterFree has f called once when the memory is no longer pinned: after Close, when no
// work in flight and no graph uses it any more. Memory that was registered can be unmapped
// then. f is called on any goroutine, at once if that is so already, and must not block.
// A later call of AfterFree replaces it; nil takes it back.
func (b *HostBuffer[T]) AfterFree(f func()) {
	if b == nil || b.m == nil || b.part {
		return
	}
	if f == nil {
		f = func() {}
	}
	b.m.AfterFree(f)
}

// Close frees the memory (cuMemFreeHost), or unpins what was registered
// (cuMemHostUnregister). Slices of allocated memory are invalid from then on. If
// work in flight still uses it, Close returns at once and it is freed in the background
// when that work is done. Registered memory is the caller's again when Close returns: it
// waits for the work. But if a graph uses it, or a call on another goroutine that Close has
// overtaken, it stays pinned until the graph is closed and the call has returned; see
// [HostBuffer.AfterFree].
//
// The driver frees pinned memory only when the device is idle. Until then it blocks
// the call, and every call that enqueues on the device, of any goroutine. So close
// at the end, and reuse until then. Closing again, and closing a range, is nil and
// does nothing.
func (b *HostBuffer[T]) Close() error {
	if b == nil || b.m == nil || b.part {
		return nil
	}
	return failed("host buffer close", b.m.Close())
}

func (b *HostBuffer[T]) memory() (*native.Memory, driver.DevicePtr, uint64) {
	if b == nil {
		return nil, 0, 0
	}
	return b.m, b.at, uint64(len(b.slice)) * uint64(unsafe.Sizeof(*new(T)))
}

func (b *HostBuffer[T]) element(T) {}
