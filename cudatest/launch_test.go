package cudatest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestFunctionAttributes(t *testing.T) {
	b := newBed(t, Config{})
	f, empty := b.own(0, "matmul"), b.own(0, "empty")
	for a, want := range map[driver.FuncAttribute]int32{
		driver.FuncMaxThreadsPerBlock: 256, driver.FuncSharedBytes: 8448, driver.FuncConstBytes: 0, driver.FuncLocalBytes: 0, driver.FuncRegisters: 32,
		driver.FuncPTXVersion: 50, driver.FuncBinaryVersion: 90, driver.FuncMaxDynamicSharedBytes: 48<<10 - 8448, driver.FuncPreferredSharedCarveout: -1,
	} {
		v, r := b.FuncGetAttribute(a, f)
		b.ok(r)
		require.Equal(t, want, v, a)
	}
	_, r := b.FuncGetAttribute(99, f)
	require.Equal(t, driver.ErrorInvalidValue, r)
	require.Equal(t, driver.ErrorInvalidValue, b.FuncSetAttribute(f, driver.FuncRegisters, 1))
	require.Equal(t, driver.ErrorInvalidValue, b.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, 227<<10-8447))
	b.ok(b.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, 227<<10-8448))
	b.ok(b.FuncSetAttribute(f, driver.FuncPreferredSharedCarveout, 50))
	v, r := b.FuncGetAttribute(driver.FuncPreferredSharedCarveout, f)
	b.ok(r)
	require.EqualValues(t, 50, v)
	b.on(0, func() {
		for _, c := range []struct {
			f      driver.Func
			size   int32
			shared uint64
			want   int32
		}{{empty, 1024, 0, 2}, {empty, 256, 0, 8}, {empty, 1, 0, 32}, {empty, 2048, 0, 0}, {empty, 256, 100 << 10, 2}, {empty, 256, 228 << 10, 0}, {f, 256, 0, 8}, {f, 257, 0, 0}} {
			n, r := b.OccupancyMaxActiveBlocksPerMultiprocessor(c.f, c.size, c.shared)
			b.ok(r)
			require.Equal(t, c.want, n, c)
		}
		_, r := b.OccupancyMaxActiveBlocksPerMultiprocessor(f, 0, 0)
		require.Equal(t, driver.ErrorInvalidValue, r)
		grid, block, r := b.OccupancyMaxPotentialBlockSize(f, 0, 0, 0)
		b.ok(r)
		require.Equal(t, []int32{8 * 132, 256}, []int32{grid, block})
		_, block, r = b.OccupancyMaxPotentialBlockSize(empty, 0, 0, 100)
		b.ok(r)
		require.EqualValues(t, 64, block, "32 blocks of 64 are as many threads as fit; 20 of 100 are fewer")
	})
}

func TestLaunchArguments(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	var got [2]uint32
	f := b.kernel(".param .u32 a, .param .u32 b", Kernel{Run: func(l *Launch) { got = [2]uint32{Arg[uint32](l, 0), Arg[uint32](l, 1)} }})
	packed := func(size uintptr) driver.Result {
		extra := params(nil, ptr([3]uint32{1, 2, 3}), nil, ptr(size), nil)
		*(*uintptr)(slot(extra, 0)) = launchParamBufferPointer
		*(*uintptr)(slot(extra, 2)) = launchParamBufferSize
		got = [2]uint32{9, 9}
		return max(b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nil, extra), b.StreamSynchronize(s))
	}
	b.ok(packed(8))
	require.Equal(t, [2]uint32{1, 2}, got)
	n := len(b.gpu.Problems())
	b.ok(packed(4))
	require.Equal(t, uint32(1), got[0])
	require.Equal(t, driver.ErrorLaunchOutOfResources, packed(12))
	problems := b.gpu.Problems()
	require.Contains(t, problems[n], "the arguments of k take 8 bytes, and 4 were given")
	require.Contains(t, problems[n+1], "and 12 were given")

	require.Equal(t, driver.ErrorInvalidValue, b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nil, nil))
	require.Equal(t, driver.ErrorInvalidValue, b.launch(f, s, ptr(uint32(1)), nil))
	require.Equal(t, driver.ErrorInvalidValue, b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params(ptr(uint32(1)), ptr(uint32(1))), params(nil)))
	unknown := params(nil)
	*(*uintptr)(unknown) = 3
	require.Equal(t, driver.ErrorInvalidValue, b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nil, unknown))
}

func TestLaunchShapes(t *testing.T) {
	b := newBed(t, Config{})
	s, f := b.stream(0, driver.StreamNonBlocking), b.own(0, "empty")
	for _, c := range []struct {
		shape [7]uint32
		want  driver.Result
	}{
		{[7]uint32{1<<31 - 1, 65535, 65535, 1024, 1, 1, 48 << 10}, driver.Success},
		{[7]uint32{1, 1, 1, 4, 4, 64, 0}, driver.Success},
		{[7]uint32{1 << 31, 1, 1, 1, 1, 1, 0}, driver.ErrorInvalidValue},
		{[7]uint32{1, 1, 65536, 1, 1, 1, 0}, driver.ErrorInvalidValue},
		{[7]uint32{1, 1, 1, 1, 1, 65, 0}, driver.ErrorInvalidValue},
		{[7]uint32{1, 1, 1, 1, 0, 1, 0}, driver.ErrorInvalidValue},
		{[7]uint32{1, 1, 1, 64, 17, 1, 0}, driver.ErrorInvalidValue},
		{[7]uint32{1, 1, 1, 1, 1, 1, 48<<10 + 1}, driver.ErrorInvalidValue},
	} {
		x := c.shape
		require.Equal(t, c.want, b.LaunchKernel(f, x[0], x[1], x[2], x[3], x[4], x[5], x[6], s, nil, nil), x)
	}
	b.ok(b.LaunchCooperativeKernel(f, 2*132, 1, 1, 1024, 1, 1, 0, s, nil))
	require.Equal(t, driver.ErrorCooperativeLaunchTooLarge, b.LaunchCooperativeKernel(f, 2*132+1, 1, 1, 1024, 1, 1, 0, s, nil))
	require.Equal(t, driver.ErrorCooperativeLaunchTooLarge, b.LaunchCooperativeKernel(f, 2, 66, 3, 1024, 1, 1, 0, s, nil))
	require.Equal(t, driver.ErrorInvalidHandle, b.launch(12345, s))
}
