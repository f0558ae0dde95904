package rules_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestKernel(t *testing.T) {
	testgpu.Rule(t, "01 a kernel has attributes and takes some", 1, func(t *testing.T, b *testgpu.Backend) {
		k := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_matmul")
		require.Equal(t, "purecuda_matmul", k.Name())
		require.Equal(t, "cuda.Kernel(device 0, purecuda_matmul)", k.String())
		require.Equal(t, b.Device(), k.Module().Device())
		require.NotZero(t, k.Handle())
		require.NotZero(t, k.Module().Handle())
		for a, want := range map[driver.FuncAttribute]int{
			driver.FuncMaxThreadsPerBlock:    256, // its launch bounds
			driver.FuncSharedBytes:           16*68*4 + 16*64*4,
			driver.FuncMaxDynamicSharedBytes: 48<<10 - (16*68*4 + 16*64*4),
		} {
			got, err := k.Attribute(a)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.NoError(t, k.SetAttribute(driver.FuncMaxDynamicSharedBytes, 100<<10))
		got, err := k.Attribute(driver.FuncMaxDynamicSharedBytes)
		require.NoError(t, err)
		require.Equal(t, 100<<10, got)

		_, err = k.Attribute(driver.FuncAttribute(1000))
		require.ErrorIs(t, err, driver.ErrorInvalidValue)
		require.ErrorContains(t, err, "kernel purecuda_matmul")
		require.ErrorIs(t, k.SetAttribute(driver.FuncMaxDynamicSharedBytes, 1<<20), driver.ErrorInvalidValue)
		require.ErrorIs(t, k.SetAttribute(driver.FuncMaxDynamicSharedBytes, 1<<32), cuda.ErrInvalid)
	})

	testgpu.Rule(t, "01 a kernel reports how many blocks fit", 1, func(t *testing.T, b *testgpu.Backend) {
		m := testgpu.Kernels(t, b.Device())
		k := testgpu.Kernel(t, m, "purecuda_matmul")
		few, err := k.MaxActiveBlocks(256, 0)
		require.NoError(t, err)
		require.Positive(t, few)
		many, err := k.MaxActiveBlocks(32, 0)
		require.NoError(t, err)
		require.Greater(t, many, few)
		none, err := k.MaxActiveBlocks(256, 1<<20)
		require.NoError(t, err)
		require.Zero(t, none)
		for _, c := range [][2]int{{0, 0}, {-1, 0}, {1 << 32, 0}, {1, -1}} {
			_, err = k.MaxActiveBlocks(c[0], c[1])
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}

		grid, block, err := testgpu.Kernel(t, m, "purecuda_fill").SuggestBlockSize(0)
		require.NoError(t, err)
		processors, err := b.Device().Attribute(driver.AttributeMultiprocessorCount)
		require.NoError(t, err)
		require.GreaterOrEqual(t, grid, processors)
		require.Zero(t, block%32)
		require.Positive(t, block)
		_, block, err = k.SuggestBlockSize(0)
		require.NoError(t, err)
		require.LessOrEqual(t, block, 256)
		_, _, err = k.SuggestBlockSize(-1)
		require.ErrorIs(t, err, cuda.ErrInvalid)
	})

	testgpu.Rule(t, "24 kernels of a closed module say so", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		m := testgpu.Kernels(t, b.Device())
		k := testgpu.Kernel(t, m, "purecuda_empty")
		p, err := k.Prepare()
		require.NoError(t, err)
		require.NoError(t, p.Launch(s, testgpu.OneThread))
		for range 2 {
			require.NoError(t, m.Close())
		}
		require.Equal(t, "cuda.Module(device 0, closed)", m.String())
		_, lookup := m.Kernel("purecuda_fill")
		_, attribute := k.Attribute(driver.FuncRegisters)
		_, occupancy := k.MaxActiveBlocks(1, 0)
		_, _, suggest := k.SuggestBlockSize(0)
		_, prepare := k.Prepare()
		for _, err := range []error{lookup, attribute, occupancy, suggest, prepare, k.SetAttribute(driver.FuncMaxDynamicSharedBytes, 0),
			k.Launch(s, testgpu.OneThread), p.Launch(s, testgpu.OneThread), p.Set(0, uint32(0))} {
			require.ErrorIs(t, err, cuda.ErrClosed)
		}
	})

	testgpu.Rule(t, "24 a launch with a closed buffer or stream says so", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		x, err := cuda.Alloc[uint32](b.Device(), 1)
		require.NoError(t, err)
		wrong := testgpu.Alloc[uint32](t, b.Device(), 1)
		check, err := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_check").Prepare(wrong, uint64(1), uint32(0), x)
		require.NoError(t, err)
		require.NoError(t, check.Launch(s, testgpu.OneThread))
		require.ErrorIs(t, check.Launch(nil, testgpu.OneThread), cuda.ErrInvalid)
		require.NoError(t, x.Close())
		err = check.Launch(s, testgpu.OneThread)
		require.ErrorIs(t, err, cuda.ErrClosed)
		require.ErrorContains(t, err, "kernel purecuda_check: a buffer of argument 3")
		closed, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		require.NoError(t, check.Set(3, wrong))
		require.ErrorIs(t, check.Launch(closed, testgpu.OneThread), cuda.ErrClosed)
		require.NoError(t, check.Launch(s, testgpu.OneThread))
	})

	// The kernel writes behind a hold on another stream than the buffer's own. Its
	// memory is freed and asked for again at once.
	testgpu.Rule(t, "29 memory that a kernel on another stream uses is not given back", 1, func(t *testing.T, b *testgpu.Backend) {
		const n = 1 << 16
		home, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		fill := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_fill")
		out := testgpu.AllocHost[uint32](t, b.Device(), n)
		x, err := cuda.AllocAsync[uint32](home, n)
		require.NoError(t, err)
		require.NoError(t, other.WaitStream(home))
		release := testgpu.Hold(t, other)
		require.NoError(t, fill.Launch(other, cuda.Grid1D(n, 256), x, uint64(n), uint32(1)))
		require.NoError(t, x.Close())
		again, err := cuda.AllocAsync[uint32](home, n)
		require.NoError(t, err)
		require.NoError(t, fill.Launch(home, cuda.Grid1D(n, 256), again, uint64(n), uint32(2)))
		require.NoError(t, cuda.Copy(home, out, again))
		require.NotEqual(t, x.Pointer(), again.Pointer())
		require.NoError(t, home.Synchronize(), "it waits for nobody")
		release()
		require.NoError(t, b.Device().Synchronize())
		for _, v := range out.Slice() {
			require.Equal(t, uint32(2), v)
		}
		require.NoError(t, again.Close())
	})

	testgpu.Rule(t, "29 pinned memory that a kernel uses is not given back", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		fill := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_fill")
		x, err := cuda.AllocHost[uint32](b.Device(), 4, nil)
		require.NoError(t, err)
		slice := x.Slice()
		release := testgpu.Hold(t, s)
		type args = struct{ x *cuda.HostBuffer[uint32] }
		require.NoError(t, fill.Launch(s, testgpu.OneThread, args{x}, uint64(4), uint32(9)))
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		testgpu.Returns(t, func() { require.NoError(t, x.Close()) })
		slice[0] = 1 // still there
		release()
		require.NoError(t, s.Synchronize())
	})

	testgpu.Rule(t, "23 a graph keeps the module and the buffers of its kernels", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		out := testgpu.AllocHost[uint32](t, b.Device(), 1)
		x, err := cuda.Alloc[uint32](b.Device(), 1)
		require.NoError(t, err)
		m := testgpu.Kernels(t, b.Device())
		fill, err := testgpu.Kernel(t, m, "purecuda_fill").Prepare(x, uint64(1), uint32(1))
		require.NoError(t, err)
		g, err := s.Capture(func() error {
			return errors.Join(fill.Launch(s, testgpu.OneThread), fill.Set(2, uint32(5)), fill.Launch(s, testgpu.OneThread), cuda.Copy(s, out, x))
		})
		require.NoError(t, err)
		defer g.Close()
		exec, err := g.Instantiate()
		require.NoError(t, err)
		defer exec.Close()
		require.NoError(t, m.Close())
		require.NoError(t, x.Close())
		require.Equal(t, 1, b.Driver.Stats().Modules)
		out.Slice()[0] = 0
		require.NoError(t, exec.Launch(s))
		require.NoError(t, s.Synchronize())
		require.Equal(t, uint32(5), out.Slice()[0])
		require.ErrorIs(t, fill.Launch(s, testgpu.OneThread), cuda.ErrClosed)
	})
}
