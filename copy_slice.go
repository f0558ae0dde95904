package cuda

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// CopyFromSlice copies src, an ordinary Go slice, to dst of the same length, in
// the order of s. The driver never sees the slice: its bytes go through pinned
// memory that the device of s keeps for this until the process ends: eight chunks of
// 1 MiB, and one more for a stream that has none in flight, up to 64. When CopyFromSlice
// returns, the copy has been enqueued and src can be changed. If no chunk is free it
// waits, on ctx, until a copy of any stream is done; a slice of more than a chunk needs
// several. If it fails, parts may have been copied.
//
// Memory that is copied often is better kept in a [HostBuffer], which [Copy]
// moves without the host's help. s cannot be capturing ([ErrCapturing]).
func CopyFromSlice[T Element](ctx context.Context, s *Stream, dst *Buffer[T], src []T) error {
	const op = "copy from slice"
	m, at, err := spanForSlice(op, s, dst, len(src))
	if err != nil {
		return err
	}
	err = s.native.CopyFromSlice(ctx, m, at, asBytes(src))
	runtime.KeepAlive(s)
	return waitFailed(ctx, op, err)
}

// CopyToSlice copies src to dst, an ordinary Go slice of the same length, in the
// order of s, and waits until it is done, or ctx is. It holds no thread while it
// waits. The bytes go through pinned memory, for which it may wait first, see
// [CopyFromSlice]; the driver never sees the slice. If it fails, parts may have been copied, and nothing is written
// to dst afterwards.
func CopyToSlice[T Element](ctx context.Context, s *Stream, dst []T, src *Buffer[T]) error {
	const op = "copy to slice"
	m, at, err := spanForSlice(op, s, src, len(dst))
	if err != nil {
		return err
	}
	err = s.native.CopyToSlice(ctx, asBytes(dst), m, at)
	runtime.KeepAlive(s)
	return waitFailed(ctx, op, err)
}

// spanForSlice returns the memory of b, and checks that a slice of n elements goes with it.
func spanForSlice[T Element](op string, s *Stream, b *Buffer[T], n int) (*native.Memory, driver.DevicePtr, error) {
	m, at, _, err := span(op, b)
	switch {
	case err != nil:
		return nil, 0, err
	case n != b.n:
		return nil, 0, invalid(op, fmt.Sprintf("the buffer has %d elements, the slice %d", b.n, n))
	case !s.usable():
		return nil, 0, nilStream(op)
	}
	return m, at, nil
}

// asBytes returns the memory of s.
func asBytes[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}
