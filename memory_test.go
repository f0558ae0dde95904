package cuda_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

func TestMemory(t *testing.T) {
	rule(t, "01 copies in each direction keep every byte", 1, func(t *testing.T, b *backend) {
		for _, s := range []*cuda.Stream{newStream(t, b.dev(), nil), b.dev().DefaultStream()} {
			n := 1<<16 + 3
			in, out := allocHost[int32](t, b.dev(), n), allocHost[int32](t, b.dev(), n)
			one, two := alloc[int32](t, b.dev(), n), alloc[int32](t, b.dev(), n)
			for i := range in.Slice() {
				in.Slice()[i] = rand.Int32()
			}
			require.NoError(t, cuda.Copy(s, one, in))
			require.NoError(t, cuda.Copy(s, two, one))
			require.NoError(t, cuda.Copy(s, out, two))
			require.NoError(t, s.Synchronize())
			require.Equal(t, in.Slice(), out.Slice())
		}
	})

	rule(t, "09 a copy between devices keeps every byte", 2, func(t *testing.T, b *backend) {
		n := 1 << 16
		s0, s1 := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		on0, on1 := alloc[uint32](t, b.devices[0], n), alloc[uint32](t, b.devices[1], n)
		out := allocHost[uint32](t, b.devices[0], n)
		require.NoError(t, cuda.Fill(s0, on0, 0xabcdef01))
		require.NoError(t, cuda.Copy(s0, on1, on0))
		require.NoError(t, s1.WaitStream(s0))
		require.NoError(t, cuda.Copy(s1, out, on1))
		require.NoError(t, s1.Synchronize())
		for _, v := range out.Slice() {
			require.Equal(t, uint32(0xabcdef01), v)
		}
	})

	rule(t, "01 fill sets elements of every size", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		fills(t, b.dev(), s, uint8(200))
		fills(t, b.dev(), s, int16(-2))
		fills(t, b.dev(), s, float32(1.5))
		fills(t, b.dev(), s, float64(0))
		fills(t, b.dev(), s, int64(-1))
		fills(t, b.dev(), s, complex(float32(2), float32(2)))
		err := cuda.Fill(s, alloc[float64](t, b.dev(), 8), 1)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})

	rule(t, "24 closed and mismatched memory is refused", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		buf, err := cuda.Alloc[uint8](b.dev(), 16)
		require.NoError(t, err)
		host, err := cuda.AllocHost[uint8](b.dev(), 17)
		require.NoError(t, err)
		err = cuda.Copy(s, buf, host)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "16 elements")
		require.ErrorContains(t, err, "17")
		require.ErrorIs(t, cuda.Copy[uint8](s, buf, nil), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(nil, buf, buf), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(s, buf, (*cuda.HostBuffer[uint8])(nil)), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Fill(s, (*cuda.Buffer[uint8])(nil), 0), cuda.ErrInvalid)
		for range 2 {
			require.NoError(t, buf.Close())
			require.NoError(t, host.Close())
		}
		require.ErrorIs(t, cuda.Fill(s, buf, 0), cuda.ErrClosed)
		require.ErrorIs(t, cuda.Copy(s, buf, buf), cuda.ErrClosed)
		for _, n := range []int{0, -1, math.MaxInt} {
			_, err := cuda.Alloc[uint32](b.dev(), n)
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
		_, err = cuda.Alloc[uint8](b.dev(), math.MaxInt/2)
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	})
}

func fills[T cuda.Element](t *testing.T, d *cuda.Device, s *cuda.Stream, v T) {
	t.Helper()
	n := 1001
	buf, out := alloc[T](t, d, n), allocHost[T](t, d, n)
	require.NoError(t, cuda.Fill(s, buf, v))
	require.NoError(t, cuda.Copy(s, out, buf))
	require.NoError(t, s.Synchronize())
	for _, got := range out.Slice() {
		require.Equal(t, v, got)
	}
}
