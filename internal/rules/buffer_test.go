package rules_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestBuffer(t *testing.T) {
	testgpu.Rule(t, "29 ranges and views", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		for _, buf := range []*cuda.Buffer[uint32]{testgpu.Alloc[uint32](t, d, 10), testgpu.AllocAsync[uint32](t, s, 10)} {
			require.Equal(t, 10, buf.Len())
			require.Same(t, d, buf.Device())
			part, err := buf.Range(2, 5)
			require.NoError(t, err)
			require.Equal(t, 3, part.Len())
			require.Equal(t, buf.Pointer()+8, part.Pointer())
			inner, err := part.Range(1, 3)
			require.NoError(t, err)
			require.Equal(t, buf.Pointer()+12, inner.Pointer())
			empty, err := buf.Range(10, 10)
			require.NoError(t, err)
			require.NoError(t, cuda.Copy(s, empty, empty))
			require.NoError(t, cuda.Fill(s, empty, 1))
			for _, bad := range [][2]int{{-1, 2}, {3, 2}, {0, 11}, {11, 11}, {math.MinInt, math.MaxInt}} {
				_, err := buf.Range(bad[0], bad[1])
				require.ErrorIs(t, err, cuda.ErrInvalid)
				require.ErrorContains(t, err, "of 10")
			}
			_, err = part.Range(0, 4)
			require.ErrorContains(t, err, "of 3")

			bytes, err := cuda.View[uint8](buf)
			require.NoError(t, err)
			require.Equal(t, 40, bytes.Len())
			wide, err := cuda.View[complex128](testgpu.Range(t, buf, 0, 8))
			require.NoError(t, err)
			require.Equal(t, 2, wide.Len())
			require.Equal(t, buf.Pointer(), wide.Pointer())
			_, err = cuda.View[uint64](testgpu.Range(t, buf, 1, 3))
			require.ErrorIs(t, err, cuda.ErrInvalid, "misaligned")
			_, err = cuda.View[uint64](testgpu.Range(t, buf, 0, 3))
			require.ErrorIs(t, err, cuda.ErrInvalid, "half an element")

			require.NoError(t, cuda.Fill(s, buf, 0))
			require.NoError(t, cuda.Fill(s, part, 7))
			require.NoError(t, cuda.Fill(s, testgpu.Range(t, bytes, 0, 2), 255))
			out := testgpu.AllocHost[uint32](t, d, 10)
			require.NoError(t, cuda.Copy(s, out, buf))
			require.NoError(t, s.Synchronize())
			require.Equal(t, []uint32{0xffff, 0, 7, 7, 7, 0, 0, 0, 0, 0}, out.Slice())

			require.NoError(t, part.Close())
			require.NoError(t, bytes.Close())
			require.NoError(t, cuda.Fill(s, part, 1), "closing a range is nothing")
			require.NoError(t, s.Synchronize())
			require.NoError(t, buf.Close())
			require.NoError(t, buf.Close())
			for _, closed := range []*cuda.Buffer[uint32]{buf, part, inner} {
				require.ErrorIs(t, cuda.Fill(s, closed, 1), cuda.ErrClosed)
				_, err := closed.Range(0, 1)
				require.ErrorIs(t, err, cuda.ErrClosed)
				_, err = cuda.View[uint8](closed)
				require.ErrorIs(t, err, cuda.ErrClosed)
			}
			require.ErrorIs(t, cuda.Fill(s, bytes, 1), cuda.ErrClosed)
		}
	})

	testgpu.Rule(t, "24 memory that is no memory is refused", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		for _, n := range []int{0, -1, math.MaxInt} {
			_, err := cuda.AllocAsync[uint64](s, n)
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
		_, err := cuda.AllocAsync[uint8](nil, 1)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = cuda.Alloc[uint8](nil, 1)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		closed, err := d.NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		_, err = cuda.AllocAsync[uint8](closed, 1)
		require.ErrorIs(t, err, cuda.ErrClosed)

		var none *cuda.Buffer[uint8]
		_, err = none.Range(0, 0)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = cuda.View[uint16](none)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.NoError(t, none.Close())
		var zero cuda.Buffer[uint8]
		require.ErrorIs(t, cuda.Fill(s, &zero, 1), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Fill(s, none, 1), cuda.ErrInvalid)
		require.NoError(t, zero.Close())
	})

	testgpu.Rule(t, "29 out of memory", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		total, err := d.TotalMemory()
		require.NoError(t, err)
		_, err = cuda.AllocAsync[uint8](s, int(2*total))
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
		require.ErrorContains(t, err, "bytes from the pool of device 0")
		_, err = cuda.Alloc[uint8](d, int(2*total))
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
		testgpu.RequireFilled(t, s, testgpu.Filled(t, s, 2), 2)
	})
}
