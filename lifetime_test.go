package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// What is asked of a lifetime: memory that is closed while other streams use it
// is not given out again too early. In all of these the memory is asked for again
// at once, and what was a mistake shows in the bytes.
const lifeSize = 1 << 16

func TestLifetime(t *testing.T) {
	rule(t, "29 two readers", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, one, two := newStream(t, d, nil), newStream(t, d, nil), newStream(t, d, nil)
		out1, out2 := allocHost[uint32](t, d, lifeSize), allocHost[uint32](t, d, lifeSize)
		buf := filled(t, home, 1)
		require.NoError(t, one.WaitStream(home))
		require.NoError(t, two.WaitStream(home))
		release1, release2 := hold(t, one), hold(t, two)
		require.NoError(t, cuda.Copy(one, out1, buf))
		require.NoError(t, cuda.Copy(two, out2, buf))
		again := closeAndAskAgain(t, home, buf)
		release1()
		require.NoError(t, one.Synchronize())
		all(t, 1, out1.Slice())
		release2()
		require.NoError(t, two.Synchronize())
		all(t, 1, out2.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 a late writer", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, writer := newStream(t, d, nil), newStream(t, d, nil)
		buf := filled(t, home, 1)
		require.NoError(t, writer.WaitStream(home))
		release := hold(t, writer)
		require.NoError(t, cuda.Fill(writer, buf, 7))
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, writer.Synchronize())
		holds(t, home, again, 2)
	})

	rule(t, "29 a reader, then a writer", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, reader, writer := newStream(t, d, nil), newStream(t, d, nil), newStream(t, d, nil)
		out := allocHost[uint32](t, d, lifeSize)
		buf := filled(t, home, 1)
		require.NoError(t, reader.WaitStream(home))
		release := hold(t, reader)
		require.NoError(t, cuda.Copy(reader, out, buf))
		require.NoError(t, writer.WaitStream(reader))
		require.NoError(t, cuda.Fill(writer, buf, 7))
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, writer.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 a copy in flight", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		const n = 4 << 20
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		in, out := allocHost[uint32](t, d, n), allocHost[uint32](t, d, n)
		for i := range in.Slice() {
			in.Slice()[i] = 1
		}
		for range 5 {
			buf := allocAsync[uint32](t, home, n)
			require.NoError(t, user.WaitStream(home))
			require.NoError(t, cuda.Copy(user, buf, in)) // takes about a millisecond
			require.NoError(t, buf.Close())
			again := allocAsync[uint32](t, home, n)
			require.NoError(t, cuda.Fill(home, again, 2))
			require.NoError(t, user.Synchronize())
			require.NoError(t, cuda.Copy(home, out, again))
			require.NoError(t, home.Synchronize())
			all(t, 2, out.Slice())
			require.NoError(t, again.Close())
		}
	})

	rule(t, "29 work that the library cannot see", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		out := allocHost[uint32](t, d, lifeSize)
		buf := filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		api := b.drv.API()
		require.Equal(t, driver.Success, api.MemcpyAsync(out.Pointer(), buf.Pointer(), 4*lifeSize, user.Handle()))
		require.NoError(t, buf.RecordStream(user))
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
		require.ErrorIs(t, buf.RecordStream(user), cuda.ErrClosed)
		require.ErrorIs(t, again.RecordStream(nil), cuda.ErrInvalid)
		require.ErrorIs(t, (*cuda.Buffer[uint32])(nil).RecordStream(user), cuda.ErrInvalid)
	})

	rule(t, "29 parts and views are one life", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, one, two := newStream(t, d, nil), newStream(t, d, nil), newStream(t, d, nil)
		out1, out2 := allocHost[uint32](t, d, lifeSize/2), allocHost[uint16](t, d, 2*lifeSize)
		buf := filled(t, home, 0x10001)
		part, err := buf.Range(lifeSize/2, lifeSize)
		require.NoError(t, err)
		view, err := cuda.View[uint16](buf)
		require.NoError(t, err)
		require.NoError(t, one.WaitStream(home))
		require.NoError(t, two.WaitStream(home))
		release1, release2 := hold(t, one), hold(t, two)
		require.NoError(t, cuda.Copy(one, out1, part))
		require.NoError(t, cuda.Copy(two, out2, view))
		again := closeAndAskAgain(t, home, buf)
		release1()
		release2()
		require.NoError(t, one.Synchronize())
		require.NoError(t, two.Synchronize())
		all(t, 0x10001, out1.Slice())
		all(t, 1, out2.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 default streams", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		created := newStream(t, d, nil)
		for _, c := range []struct{ home, user *cuda.Stream }{
			{d.DefaultStream(), created}, {created, d.DefaultStream()},
		} {
			out := allocHost[uint32](t, d, lifeSize)
			buf := filled(t, c.home, 1)
			require.NoError(t, c.user.WaitStream(c.home))
			release := hold(t, c.user)
			require.NoError(t, cuda.Copy(c.user, out, buf))
			again := closeAndAskAgain(t, c.home, buf)
			release()
			require.NoError(t, c.user.Synchronize())
			all(t, 1, out.Slice())
			holds(t, c.home, again, 2)
			require.NoError(t, again.Close())
		}
	})
}

func allocAsync[T cuda.Element](t testing.TB, s *cuda.Stream, n int) *cuda.Buffer[T] {
	t.Helper()
	b, err := cuda.AllocAsync[T](s, n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// filled returns pool memory with v in it.
func filled(t testing.TB, home *cuda.Stream, v uint32) *cuda.Buffer[uint32] {
	t.Helper()
	b := allocAsync[uint32](t, home, lifeSize)
	require.NoError(t, cuda.Fill(home, b, v))
	return b
}

// closeAndAskAgain closes buf, gets its memory again at once, and writes 2 into
// it.
func closeAndAskAgain(t testing.TB, home *cuda.Stream, buf *cuda.Buffer[uint32]) *cuda.Buffer[uint32] {
	t.Helper()
	was := buf.Pointer()
	returns(t, func() { require.NoError(t, buf.Close()) })
	again := filled(t, home, 2)
	require.NotEqual(t, was, again.Pointer(), "the memory is still used")
	returns(t, func() { require.NoError(t, home.Synchronize()) })
	return again
}

// holds checks what is in b, in the order of home.
func holds(t testing.TB, home *cuda.Stream, b *cuda.Buffer[uint32], want uint32) {
	t.Helper()
	out := allocHost[uint32](t, b.Device(), b.Len())
	require.NoError(t, cuda.Copy(home, out, b))
	require.NoError(t, home.Synchronize())
	all(t, want, out.Slice())
}

// all checks that all elements of got are want.
func all[T cuda.Element](t testing.TB, want T, got []T) {
	t.Helper()
	for i, v := range got {
		if v != want {
			require.Equal(t, want, v, "element %d", i)
		}
	}
}
