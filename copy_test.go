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

func TestCopy(t *testing.T) {
	rule(t, "01 copies in each direction keep every byte", 1, func(t *testing.T, b *backend) {
		for _, s := range []*cuda.Stream{newStream(t, b.dev(), nil), b.dev().DefaultStream()} {
			n := 1<<16 + 3
			in, out := allocHost[int32](t, b.dev(), n), allocHost[int32](t, b.dev(), n)
			one, two := alloc[int32](t, b.dev(), n), allocAsync[int32](t, s, n)
			for i := range in.Slice() {
				in.Slice()[i] = rand.Int32()
			}
			require.NoError(t, cuda.Copy(s, one, in))
			require.NoError(t, cuda.Copy(s, two, one))
			require.NoError(t, cuda.Copy(s, out, two))
			require.NoError(t, s.Synchronize())
			require.Equal(t, in.Slice(), out.Slice())
			spare := allocHost[int32](t, b.dev(), n)
			require.NoError(t, cuda.Copy(s, spare, in))
			require.NoError(t, s.Synchronize())
			require.Equal(t, in.Slice(), spare.Slice())
		}
	})

	rule(t, "01 fill sets elements of every size", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		fills(t, b.dev(), s, uint8(200))
		fills(t, b.dev(), s, int16(-2))
		fills(t, b.dev(), s, uint16(0x1234))
		fills(t, b.dev(), s, float32(1.5))
		fills(t, b.dev(), s, float64(0))
		fills(t, b.dev(), s, int64(-1))
		fills(t, b.dev(), s, uint64(0x1234567812345678))
		fills(t, b.dev(), s, complex(float32(2), float32(2)))
		fills(t, b.dev(), s, complex128(0))
		wide, pairs := alloc[float64](t, b.dev(), 8), alloc[complex128](t, b.dev(), 8)
		require.ErrorIs(t, cuda.Fill(s, wide, 1), errors.ErrUnsupported)
		require.ErrorIs(t, cuda.Fill(s, pairs, complex(0, 1)), errors.ErrUnsupported)
	})

	rule(t, "01 rectangles", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		s := newStream(t, d, nil)
		const columns, rows = 7, 5
		in, out := allocHost[uint16](t, d, columns*rows), allocHost[uint16](t, d, columns*rows)
		for i := range in.Slice() {
			in.Slice()[i] = uint16(i)
		}
		tile := alloc[uint16](t, d, 3*2) // the middle of the matrix, row 2 and 3, column 1 to 3
		onDevice := allocAsync[uint16](t, s, columns*rows)
		from, err := in.Range(2*columns+1, columns*rows)
		require.NoError(t, err)
		require.NoError(t, cuda.Copy2D(s, tile, 3, from, columns, 3, 2))
		require.NoError(t, cuda.Fill(s, onDevice, 99))
		require.NoError(t, cuda.Copy2D(s, mustRange(t, onDevice, 2*columns+1, columns*rows), columns, tile, 3, 3, 2))
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

	rule(t, "29 rectangles are uses", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		out := allocHost[uint32](t, d, lifeSize)
		buf := filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, cuda.Copy2D(user, out, 256, buf, 256, 256, lifeSize/256))
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)

		require.NoError(t, user.WaitStream(home))
		release = hold(t, user)
		require.NoError(t, cuda.Copy2D(user, again, 256, out, 256, 256, lifeSize/256))
		again = closeAndAskAgain(t, home, again)
		release()
		require.NoError(t, user.Synchronize())
		holds(t, home, again, 2)
	})

	rule(t, "24 closed and mismatched memory is refused", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		buf, err := cuda.Alloc[uint8](b.dev(), 16)
		require.NoError(t, err)
		host, err := cuda.AllocHost[uint8](b.dev(), 17, nil)
		require.NoError(t, err)
		err = cuda.Copy(s, buf, host)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "16 elements")
		require.ErrorContains(t, err, "17")
		require.ErrorIs(t, cuda.Copy[uint8](s, buf, nil), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(nil, buf, buf), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Copy(s, buf, (*cuda.HostBuffer[uint8])(nil)), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.Fill(s, (*cuda.Buffer[uint8])(nil), 0), cuda.ErrInvalid)
		_, other := simulatedDevice(t, nil)
		require.ErrorIs(t, cuda.Copy(newStream(t, other, nil), buf, buf), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, cuda.Fill(newStream(t, other, nil), buf, 1), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, cuda.Copy2D(newStream(t, other, nil), buf, 1, buf, 1, 1, 1), cuda.ErrDeviceMismatch)
		require.ErrorIs(t, buf.RecordStream(newStream(t, other, nil)), cuda.ErrDeviceMismatch)
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

// fills fills a part of memory.
func fills[T cuda.Element](t *testing.T, d *cuda.Device, s *cuda.Stream, v T) {
	t.Helper()
	n := 1001
	buf, out := alloc[T](t, d, n), allocHost[T](t, d, n)
	require.NoError(t, cuda.Fill(s, buf, 0))
	require.NoError(t, cuda.Fill(s, mustRange(t, buf, 1, n-1), v))
	require.NoError(t, cuda.Copy(s, out, buf))
	require.NoError(t, s.Synchronize())
	all(t, v, out.Slice()[1:n-1])
	all(t, 0, []T{out.Slice()[0], out.Slice()[n-1]})
}
