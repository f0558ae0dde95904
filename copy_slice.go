package cuda

import (
	"context"
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// CopyFromSlice copies src, an ordinary Go slice, to dst of the same length, in
// the order of s. The driver never sees the slice: its bytes go through pinned
// memory that the device of s keeps for this, 8 MiB at most and until the process
// ends. When CopyFromSlice returns, the copy has been enqueued and src can be
// changed. Eight such copies, of at most a MiB each, can be in flight on a device;
// larger slices and more copies make it wait, on ctx, until one of them is done.
// If it fails, parts may have been copied.
//
// Memory that is copied often is better kept in a [HostBuffer], which [Copy]
// moves without the host's help. s cannot be capturing ([ErrCapturing]).
func CopyFromSlice[T Element](ctx context.Context, s *Stream, dst *Buffer[T], src []T) error {
	const op = "copy from slice"
	h, at, err := holdForSlice(op, s, dst, len(src))
	if err != nil {
		return err
	}
	defer h.release()
	defer s.h.release()
	st := &s.dev.staging
	for rest := asBytes(src); len(rest) > 0; {
		c, err := st.take(ctx, op, s.dev, true)
		if err != nil {
			return err
		}
		n := copy(c.bytes, rest)
		if r := st.copy(s, c, h, at, c.at, n); r != driver.Success {
			return failure(op, r)
		}
		st.put(c)
		rest, at = rest[n:], at+driver.DevicePtr(n)
	}
	return nil
}

// CopyToSlice copies src to dst, an ordinary Go slice of the same length, in the
// order of s, and waits until it is done, or ctx is. It holds no thread while it
// waits. The bytes go through pinned memory, see [CopyFromSlice]; the driver never
// sees the slice. If it fails, parts may have been copied, and nothing is written
// to dst afterwards.
func CopyToSlice[T Element](ctx context.Context, s *Stream, dst []T, src *Buffer[T]) error {
	const op = "copy to slice"
	h, at, err := holdForSlice(op, s, src, len(dst))
	if err != nil {
		return err
	}
	defer h.release()
	defer s.h.release()
	st := &s.dev.staging

	var flying []*chunk // in the order of their copies
	defer func() {
		for _, c := range flying { // the next user waits for their events
			st.put(c)
		}
	}()
	ahead := asBytes(dst) // not asked for yet
	for rest := ahead; len(rest) > 0; {
		for len(ahead) > 0 {
			c, err := st.take(ctx, op, s.dev, len(flying) == 0)
			if err != nil {
				return err
			}
			if c == nil {
				break
			}
			n := min(len(ahead), len(c.bytes))
			if r := st.copy(s, c, h, c.at, at, n); r != driver.Success {
				return failure(op, r)
			}
			flying = append(flying, c)
			ahead, at = ahead[n:], at+driver.DevicePtr(n)
		}
		c := flying[0]
		if err := c.event.await(ctx, op); err != nil {
			return err
		}
		rest = rest[copy(rest, c.bytes):]
		flying = flying[1:]
		st.put(c)
	}
	return nil
}

// holdForSlice takes references to s and to the memory of b, and checks that a
// slice of n elements goes with it.
func holdForSlice[T Element](op string, s *Stream, b *Buffer[T], n int) (*handle, driver.DevicePtr, error) {
	h, at, err := b.hold(op)
	if err != nil {
		return nil, 0, err
	}
	if n != b.n {
		h.release()
		return nil, 0, invalid(op, fmt.Sprintf("the buffer has %d elements, the slice %d", b.n, n))
	}
	if err := s.acquire(op); err != nil {
		h.release()
		return nil, 0, err
	}
	if h.dev.driver != s.dev.driver {
		err = twoDrivers(op)
	} else {
		err = s.notCapturing(op, true)
	}
	if err != nil {
		h.release()
		s.h.release()
	}
	return h, at, err
}
