package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestKernel(t *testing.T) {
	testgpu.Rule(t, "01 a kernel tells its attributes and takes some", 1, func(t *testing.T, b *testgpu.Backend) {
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

	testgpu.Rule(t, "01 a kernel tells how many blocks fit", 1, func(t *testing.T, b *testgpu.Backend) {
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
		require.NoError(t, p.Launch(s, one))
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
			k.Launch(s, one), p.Launch(s, one), p.Set(0, uint32(0))} {
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
		require.NoError(t, check.Launch(s, one))
		require.ErrorIs(t, check.Launch(nil, one), cuda.ErrInvalid)
		require.NoError(t, x.Close())
		err = check.Launch(s, one)
		require.ErrorIs(t, err, cuda.ErrClosed)
		require.ErrorContains(t, err, "kernel purecuda_check: a buffer of argument 3")
		closed, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		require.NoError(t, check.Set(3, wrong))
		require.ErrorIs(t, check.Launch(closed, one), cuda.ErrClosed)
		require.NoError(t, check.Launch(s, one))
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
		require.NoError(t, fill.Launch(s, one, args{x}, uint64(4), uint32(9)))
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
			return errors.Join(fill.Launch(s, one), fill.Set(2, uint32(5)), fill.Launch(s, one), cuda.Copy(s, out, x))
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
		require.ErrorIs(t, fill.Launch(s, one), cuda.ErrClosed)
	})
}

// Closing a module, a buffer and a stream races with launches: each works or says
// closed.
func TestLaunchRacesClose(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	for range 100 {
		m, err := d.LoadModule([]byte(kernels.PTX))
		require.NoError(t, err)
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		x, err := cuda.AllocAsync[uint32](d.DefaultStream(), 1)
		require.NoError(t, err)
		k := testgpu.Kernel(t, m, "purecuda_fill")
		p, err := k.Prepare(x, uint64(1), uint32(1))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					for _, err := range []error{p.Launch(s, one), k.Launch(s, one, x, uint64(1), uint32(2))} {
						if err != nil && !errors.Is(err, cuda.ErrClosed) {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Go(func() { _ = m.Close() })
		wg.Go(func() { _ = x.Close() })
		wg.Go(func() { _ = s.Close() })
		wg.Wait()
	}
}

// A prepared kernel keeps what it needs from being collected, and nothing keeps
// that afterwards.
func TestPreparedKernelKeepsItsObjects(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	prepare := func() *cuda.PreparedKernel {
		m, err := d.LoadModule([]byte(kernels.PTX))
		require.NoError(t, err)
		x, err := cuda.Alloc[float32](d, 4)
		require.NoError(t, err)
		part, err := x.Range(1, 2)
		require.NoError(t, err)
		p, err := testgpu.Kernel(t, m, "purecuda_affine").Prepare(struct {
			dst, src      *cuda.Buffer[float32]
			scale, offset float32
			n             uint64
		}{part, part, 1, 1, 1})
		require.NoError(t, err)
		return p
	}
	p := prepare()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond) // for cleanups to run in
	}
	require.NoError(t, p.Launch(d.DefaultStream(), one))
	require.NoError(t, d.Synchronize())
	require.Equal(t, cuda.Stats{Modules: 1, Buffers: 1}, d.Driver().Stats())
	runtime.KeepAlive(p)
	p = nil
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Forgotten: 2} })
}

func TestNilKernels(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s := d.DefaultStream()
	var m *cuda.Module
	var k *cuda.Kernel
	var p *cuda.PreparedKernel
	_, lookup := m.Kernel("x")
	_, attribute := k.Attribute(0)
	_, prepare := k.Prepare()
	for _, err := range []error{lookup, attribute, prepare, k.Launch(s, one), p.Launch(s, one), p.Set(0, int8(0)),
		(&cuda.Kernel{}).Launch(s, one), (&cuda.PreparedKernel{}).Launch(s, one)} {
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}
	require.NoError(t, m.Close())
	require.Equal(t, "cuda.Module(nil)", m.String())
	require.Equal(t, "cuda.Kernel(nil)", k.String())
}

// The PTX of the examples is right on a real device too.
func TestScalePTX(t *testing.T) {
	d, err := testgpu.RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	s, n := testgpu.NewStream(t, d, nil), 1001
	x, out := randoms(t, d, n), testgpu.AllocHost[float32](t, d, n)
	on := testgpu.Alloc[float32](t, d, n)
	require.NoError(t, cuda.Copy(s, on, x))
	scale := testgpu.Kernel(t, testgpu.LoadModule(t, d, scalePTX), "scale")
	require.NoError(t, scale.Launch(s, cuda.Grid1D(n, 256), on, float32(3), uint64(n-1)))
	require.NoError(t, cuda.Copy(s, out, on))
	require.NoError(t, s.Synchronize())
	for i, v := range x.Slice()[:n-1] {
		require.Equal(t, 3*v, out.Slice()[i])
	}
	require.Equal(t, x.Slice()[n-1], out.Slice()[n-1])
}
