package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestLifetime(t *testing.T) {
	testgpu.Rule(t, "29 two readers", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, one, two := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		out1, out2 := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, one.WaitStream(home))
		require.NoError(t, two.WaitStream(home))
		release1, release2 := testgpu.Hold(t, one), testgpu.Hold(t, two)
		require.NoError(t, cuda.Copy(one, out1, buf))
		require.NoError(t, cuda.Copy(two, out2, buf))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release1()
		require.NoError(t, one.Synchronize())
		testgpu.RequireAll(t, 1, out1.Slice())
		release2()
		require.NoError(t, two.Synchronize())
		testgpu.RequireAll(t, 1, out2.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 a late writer", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, writer := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, writer.WaitStream(home))
		release := testgpu.Hold(t, writer)
		require.NoError(t, cuda.Fill(writer, buf, 7))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, writer.Synchronize())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 a reader, then a writer", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, reader, writer := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, reader.WaitStream(home))
		release := testgpu.Hold(t, reader)
		require.NoError(t, cuda.Copy(reader, out, buf))
		require.NoError(t, writer.WaitStream(reader))
		require.NoError(t, cuda.Fill(writer, buf, 7))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, writer.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 a copy in flight", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		const n = 4 << 20
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		in, out := testgpu.AllocHost[uint32](t, d, n), testgpu.AllocHost[uint32](t, d, n)
		for i := range in.Slice() {
			in.Slice()[i] = 1
		}
		for range 5 {
			buf := testgpu.AllocAsync[uint32](t, home, n)
			require.NoError(t, user.WaitStream(home))
			require.NoError(t, cuda.Copy(user, buf, in)) // takes about a millisecond
			require.NoError(t, buf.Close())
			again := testgpu.AllocAsync[uint32](t, home, n)
			require.NoError(t, cuda.Fill(home, again, 2))
			require.NoError(t, user.Synchronize())
			require.NoError(t, cuda.Copy(home, out, again))
			require.NoError(t, home.Synchronize())
			testgpu.RequireAll(t, 2, out.Slice())
			require.NoError(t, again.Close())
		}
	})

	testgpu.Rule(t, "29 work that the library cannot see", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		api := b.Driver.API()
		require.Equal(t, driver.Success, api.MemcpyAsync(out.Pointer(), buf.Pointer(), 4*testgpu.FilledSize, user.Handle()))
		require.NoError(t, buf.RecordStream(user))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
		require.ErrorIs(t, buf.RecordStream(user), cuda.ErrClosed)
		require.ErrorIs(t, again.RecordStream(nil), cuda.ErrInvalid)
		require.ErrorIs(t, (*cuda.Buffer[uint32])(nil).RecordStream(user), cuda.ErrInvalid)
	})

	testgpu.Rule(t, "29 parts and views are one life", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, one, two := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		out1, out2 := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize/2), testgpu.AllocHost[uint16](t, d, 2*testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 0x10001)
		part, err := buf.Range(testgpu.FilledSize/2, testgpu.FilledSize)
		require.NoError(t, err)
		view, err := cuda.View[uint16](buf)
		require.NoError(t, err)
		require.NoError(t, one.WaitStream(home))
		require.NoError(t, two.WaitStream(home))
		release1, release2 := testgpu.Hold(t, one), testgpu.Hold(t, two)
		require.NoError(t, cuda.Copy(one, out1, part))
		require.NoError(t, cuda.Copy(two, out2, view))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release1()
		release2()
		require.NoError(t, one.Synchronize())
		require.NoError(t, two.Synchronize())
		testgpu.RequireAll(t, 0x10001, out1.Slice())
		testgpu.RequireAll(t, 1, out2.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 default streams", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		created := testgpu.NewStream(t, d, nil)
		for _, c := range []struct{ home, user *cuda.Stream }{
			{d.DefaultStream(), created}, {created, d.DefaultStream()},
		} {
			out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
			buf := testgpu.Filled(t, c.home, 1)
			require.NoError(t, c.user.WaitStream(c.home))
			release := testgpu.Hold(t, c.user)
			require.NoError(t, cuda.Copy(c.user, out, buf))
			again := testgpu.CloseAndAllocate(t, c.home, buf)
			release()
			require.NoError(t, c.user.Synchronize())
			testgpu.RequireAll(t, 1, out.Slice())
			testgpu.RequireFilled(t, c.home, again, 2)
			require.NoError(t, again.Close())
		}
	})
}
