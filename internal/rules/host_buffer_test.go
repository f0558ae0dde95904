package rules_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestHostBuffer(t *testing.T) {
	testgpu.Rule(t, "29 pinned memory closed while a copy is in flight", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		one, two := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		dst, src := testgpu.Alloc[uint32](t, d, testgpu.FilledSize), testgpu.Alloc[uint32](t, d, testgpu.FilledSize)
		in, out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		check := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		for i := range in.Slice() {
			in.Slice()[i] = uint32(i)
		}
		release1, release2 := testgpu.Hold(t, one), testgpu.Hold(t, two)
		require.NoError(t, cuda.Copy(one, dst, in))
		require.NoError(t, cuda.Copy(two, src, in))
		require.NoError(t, cuda.Copy(two, out, src))
		testgpu.Returns(t, func() {
			require.NoError(t, in.Close())
			require.NoError(t, out.Close())
		})
		require.ErrorIs(t, cuda.Copy(one, dst, in), cuda.ErrClosed)
		// Memory that the driver may put where the old one was.
		for range 3 {
			other := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
			clear(other.Slice())
		}
		t.Cleanup(release1) // before the new memory is freed, which waits for the device
		t.Cleanup(release2)
		release1()
		require.NoError(t, one.Synchronize())
		time.Sleep(testgpu.Soon)
		require.Zero(t, calls.Count("MemFreeHost"), "the other copy is in flight")
		require.NoError(t, cuda.Copy(one, check, dst))
		require.NoError(t, one.Synchronize())
		for i, v := range check.Slice() {
			require.Equal(t, uint32(i), v)
		}
		release2()
		calls.WaitCount(t, "MemFreeHost", 2)
	})

	testgpu.Rule(t, "29 pinned memory that is not in use", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		host, dst := testgpu.AllocHost[uint32](t, d, 16), testgpu.Alloc[uint32](t, d, 16)
		require.NoError(t, cuda.Copy(s, dst, host))
		require.NoError(t, s.Synchronize())
		require.NoError(t, host.Close())
		require.NoError(t, host.Close())
		calls.WaitCount(t, "MemFreeHost", 1)
		require.Equal(t, 1, calls.Count("MemHostAlloc"), "a hold's would be freed too")
	})

	testgpu.Rule(t, "29 pinned memory in work that the library cannot see", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		s, dst := testgpu.NewStream(t, d, nil), testgpu.Alloc[uint32](t, d, testgpu.FilledSize)
		host := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		for i := range host.Slice() {
			host.Slice()[i] = 1
		}
		part, err := host.Range(0, testgpu.FilledSize)
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
		require.Equal(t, driver.Success, d.Driver().API().MemcpyAsync(dst.Pointer(), host.Pointer(), 4*testgpu.FilledSize, s.Handle()))
		require.NoError(t, part.RecordStream(s))
		require.NoError(t, part.Close(), "closing a range is nothing")
		testgpu.Returns(t, func() { require.NoError(t, host.Close()) })
		require.ErrorIs(t, part.RecordStream(s), cuda.ErrClosed)
		require.Zero(t, calls.Count("MemFreeHost"))
		release()
		testgpu.RequireFilled(t, s, dst, 1)
		require.Eventually(t, func() bool { return calls.Count("MemFreeHost") >= 1 }, 10*time.Second, time.Millisecond)
	})

	testgpu.Rule(t, "01 ways to pin memory", 1, func(t *testing.T, b *testgpu.Backend) {
		var flags uint32
		bare := b.Driver.API().MemHostAlloc
		b, _ = testgpu.Counted(t, b, func(api *driver.API) {
			api.MemHostAlloc = func(n uint64, f uint32) (unsafe.Pointer, driver.Result) { flags = f; return bare(n, f) }
		})
		d := b.Device()
		s, dst := testgpu.NewStream(t, d, nil), testgpu.Alloc[uint16](t, d, 100)
		for _, c := range []struct {
			opts      *cuda.HostOptions
			with, not uint32
		}{
			{nil, driver.MemHostAllocPortable, driver.MemHostAllocWriteCombined},
			{&cuda.HostOptions{}, driver.MemHostAllocPortable, driver.MemHostAllocWriteCombined},
			{&cuda.HostOptions{WriteCombined: true}, driver.MemHostAllocPortable | driver.MemHostAllocWriteCombined, 0},
			{&cuda.HostOptions{OneDevice: true}, 0, driver.MemHostAllocPortable | driver.MemHostAllocWriteCombined},
			{&cuda.HostOptions{OneDevice: true, WriteCombined: true}, driver.MemHostAllocWriteCombined, driver.MemHostAllocPortable},
		} {
			host, err := cuda.AllocHost[uint16](d, 100, c.opts)
			require.NoError(t, err)
			require.Equal(t, c.with, flags&(driver.MemHostAllocPortable|driver.MemHostAllocWriteCombined))
			require.Zero(t, flags&c.not)
			require.Equal(t, 100, host.Len())
			for i := range host.Slice() {
				host.Slice()[i] = uint16(i)
			}
			out := testgpu.AllocHost[uint16](t, d, 100)
			require.NoError(t, cuda.Copy(s, dst, host))
			require.NoError(t, cuda.Copy(s, out, dst))
			require.NoError(t, s.Synchronize())
			for i, v := range out.Slice() {
				require.Equal(t, uint16(i), v)
			}
			require.NoError(t, host.Close())
		}
	})

	testgpu.Rule(t, "24 parts of pinned memory, and no memory", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		host, dst := testgpu.AllocHost[uint32](t, d, 8), testgpu.Alloc[uint32](t, d, 3)
		for i := range host.Slice() {
			host.Slice()[i] = uint32(i)
		}
		part, err := host.Range(2, 5)
		require.NoError(t, err)
		require.Equal(t, []uint32{2, 3, 4}, part.Slice())
		require.Equal(t, 3, cap(part.Slice()), "appending must not write on")
		require.Equal(t, host.Pointer()+8, part.Pointer())
		require.NoError(t, cuda.Copy(s, dst, part))
		into, err := host.Range(5, 8)
		require.NoError(t, err)
		require.NoError(t, cuda.Copy(s, into, dst))
		require.NoError(t, s.Synchronize())
		require.Equal(t, []uint32{0, 1, 2, 3, 4, 2, 3, 4}, host.Slice())
		require.NoError(t, part.Close())
		require.NoError(t, cuda.Copy(s, dst, part), "closing a range is nothing")
		require.NoError(t, s.Synchronize())
		for _, bad := range [][2]int{{-1, 2}, {3, 2}, {0, 9}} {
			_, err := host.Range(bad[0], bad[1])
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
		require.NoError(t, host.Close())
		require.ErrorIs(t, cuda.Copy(s, dst, part), cuda.ErrClosed)

		var none *cuda.HostBuffer[uint32]
		_, err = none.Range(0, 0)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorIs(t, none.RecordStream(s), cuda.ErrInvalid)
		require.NoError(t, none.Close())
		_, err = cuda.AllocHost[uint32](nil, 1, nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = cuda.RegisterHost[uint32](d, nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = cuda.RegisterHost(nil, []byte{1})
		require.ErrorIs(t, err, cuda.ErrInvalid)
	})
}
