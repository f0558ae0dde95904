package rules_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestCopy(t *testing.T) {
	testgpu.Rule(t, "01 copies in each direction keep every byte", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, s := range []*cuda.Stream{testgpu.NewStream(t, b.Device(), nil), b.Device().DefaultStream()} {
			n := 1<<16 + 3
			in, out := testgpu.AllocHost[int32](t, b.Device(), n), testgpu.AllocHost[int32](t, b.Device(), n)
			one, two := testgpu.Alloc[int32](t, b.Device(), n), testgpu.AllocAsync[int32](t, s, n)
			for i := range in.Slice() {
				in.Slice()[i] = rand.Int32()
			}
			require.NoError(t, cuda.Copy(s, one, in))
			require.NoError(t, cuda.Copy(s, two, one))
			require.NoError(t, cuda.Copy(s, out, two))
			require.NoError(t, s.Synchronize())
			require.Equal(t, in.Slice(), out.Slice())
			spare := testgpu.AllocHost[int32](t, b.Device(), n)
			require.NoError(t, cuda.Copy(s, spare, in))
			require.NoError(t, s.Synchronize())
			require.Equal(t, in.Slice(), spare.Slice())
		}
	})

	testgpu.Rule(t, "01 fill sets elements of every size", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		fills(t, b.Device(), s, uint8(200))
		fills(t, b.Device(), s, int16(-2))
		fills(t, b.Device(), s, uint16(0x1234))
		fills(t, b.Device(), s, float32(1.5))
		fills(t, b.Device(), s, float64(0))
		fills(t, b.Device(), s, int64(-1))
		fills(t, b.Device(), s, uint64(0x1234567812345678))
		fills(t, b.Device(), s, complex(float32(2), float32(2)))
		fills(t, b.Device(), s, complex128(0))
		wide, pairs := testgpu.Alloc[float64](t, b.Device(), 8), testgpu.Alloc[complex128](t, b.Device(), 8)
		require.ErrorIs(t, cuda.Fill(s, wide, 1), errors.ErrUnsupported)
		require.ErrorIs(t, cuda.Fill(s, pairs, complex(0, 1)), errors.ErrUnsupported)
	})

	testgpu.Rule(t, "01 rectangles", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		const columns, rows = 7, 5
		in, out := testgpu.AllocHost[uint16](t, d, columns*rows), testgpu.AllocHost[uint16](t, d, columns*rows)
		for i := range in.Slice() {
			in.Slice()[i] = uint16(i)
		}
		tile := testgpu.Alloc[uint16](t, d, 3*2) // the middle of the matrix, row 2 and 3, column 1 to 3
		onDevice := testgpu.AllocAsync[uint16](t, s, columns*rows)
		from, err := in.Range(2*columns+1, columns*rows)
		require.NoError(t, err)
		require.NoError(t, cuda.Copy2D(s, tile, 3, from, columns, 3, 2))
		require.NoError(t, cuda.Fill(s, onDevice, 99))
		require.NoError(t, cuda.Copy2D(s, testgpu.Range(t, onDevice, 2*columns+1, columns*rows), columns, tile, 3, 3, 2))
		require.NoError(t, cuda.Copy(s, out, onDevice))
		require.NoError(t, s.Synchronize())
		for i, v := range out.Slice() {
			want := uint16(99)
			if row, column := i/columns, i%columns; row >= 2 && row < 4 && column >= 1 && column < 4 {
				want = uint16(i)
			}
			require.Equal(t, want, v, "element %d", i)
		}

		clear(out.Slice())
		last, err := out.Range(columns*rows-3, columns*rows) // the last row ends with the memory
		require.NoError(t, err)
		require.NoError(t, cuda.Copy2D(s, last, 3, tile, 3, 3, 1))
		require.NoError(t, cuda.Copy2D(s, out, columns, tile, 3, 3, 0))
		require.NoError(t, cuda.Copy2D(s, out, columns, tile, 3, 0, 2))
		require.NoError(t, s.Synchronize())
		require.Equal(t, append(make([]uint16, columns*rows-3), 15, 16, 17), out.Slice())

		for _, bad := range []struct {
			name                             string
			dstPitch, srcPitch, width, nRows int
		}{
			{"destination pitch", 2, 3, 3, 2},
			{"source pitch", 7, 2, 3, 2},
			{"negative width", 7, 3, -1, 2},
			{"negative rows", 7, 3, 3, -1},
			{"destination too small", 17, 3, 3, 3},
			{"source too small", 7, 3, 3, 3},
			{"source too small for one row", 7, 7, 7, 1},
			{"absurd", math.MaxInt, math.MaxInt, 3, math.MaxInt},
		} {
			require.ErrorIs(t, cuda.Copy2D(s, onDevice, bad.dstPitch, tile, bad.srcPitch, bad.width, bad.nRows), cuda.ErrInvalid, bad.name)
		}
		var none *cuda.Buffer[uint16]
		require.ErrorIs(t, cuda.Copy2D(s, none, 3, tile, 3, 3, 2), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy2D(s, tile, 3, none, 3, 3, 2), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy2D[uint16](s, nil, 3, tile, 3, 3, 2), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy2D(nil, tile, 3, tile, 3, 3, 2), cuda.ErrInvalid)
		require.NoError(t, tile.Close())
		require.ErrorIs(t, cuda.Copy2D(s, onDevice, 7, tile, 3, 3, 2), cuda.ErrClosed)
		require.ErrorIs(t, cuda.Copy2D(s, tile, 3, onDevice, 7, 3, 2), cuda.ErrClosed)
	})

	testgpu.Rule(t, "29 rectangles are uses", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.Copy2D(user, out, 256, buf, 256, 256, testgpu.FilledSize/256))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)

		require.NoError(t, user.WaitStream(home))
		release = testgpu.Hold(t, user)
		require.NoError(t, cuda.Copy2D(user, again, 256, out, 256, 256, testgpu.FilledSize/256))
		again = testgpu.CloseAndAllocate(t, home, again)
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "24 closed and mismatched memory is refused", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		buf, err := cuda.Alloc[uint8](b.Device(), 16)
		require.NoError(t, err)
		host, err := cuda.AllocHost[uint8](b.Device(), 17, nil)
		require.NoError(t, err)
		err = cuda.Copy(s, buf, host)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "16 elements")
		require.ErrorContains(t, err, "17")
		require.ErrorIs(t, cuda.Copy[uint8](s, buf, nil), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(nil, buf, buf), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(s, buf, (*cuda.HostBuffer[uint8])(nil)), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Fill(s, (*cuda.Buffer[uint8])(nil), 0), cuda.ErrInvalid)
		_, other := testgpu.SimulatedDevice(t, nil)
		require.ErrorIs(t, cuda.Copy(testgpu.NewStream(t, other, nil), buf, buf), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, cuda.Fill(testgpu.NewStream(t, other, nil), buf, 1), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, cuda.Copy2D(testgpu.NewStream(t, other, nil), buf, 1, buf, 1, 1, 1), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, buf.RecordStream(testgpu.NewStream(t, other, nil)), cuda.ErrDeviceMismatch)
		for range 2 {
			require.NoError(t, buf.Close())
			require.NoError(t, host.Close())
		}
		require.ErrorIs(t, cuda.Fill(s, buf, 0), cuda.ErrClosed)
		require.ErrorIs(t, cuda.Copy(s, buf, buf), cuda.ErrClosed)
		for _, n := range []int{0, -1, math.MaxInt} {
			_, err := cuda.Alloc[uint32](b.Device(), n)
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
		_, err = cuda.Alloc[uint8](b.Device(), math.MaxInt/2)
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	})
}

// fills fills a part of memory.
func fills[T cuda.Element](t *testing.T, d *cuda.Device, s *cuda.Stream, v T) {
	t.Helper()
	n := 1001
	buf, out := testgpu.Alloc[T](t, d, n), testgpu.AllocHost[T](t, d, n)
	require.NoError(t, cuda.Fill(s, buf, 0))
	require.NoError(t, cuda.Fill(s, testgpu.Range(t, buf, 1, n-1), v))
	require.NoError(t, cuda.Copy(s, out, buf))
	require.NoError(t, s.Synchronize())
	testgpu.RequireAll(t, v, out.Slice()[1:n-1])
	testgpu.RequireAll(t, 0, []T{out.Slice()[0], out.Slice()[n-1]})
}
