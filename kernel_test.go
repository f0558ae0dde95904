package cuda_test

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

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
		require.NoError(t, s.WaitStream(d.DefaultStream()))
		k := testgpu.Kernel(t, m, "purecuda_fill")
		p, err := k.Prepare(x, uint64(1), uint32(1))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					for _, err := range []error{p.Launch(s, testgpu.OneThread), k.Launch(s, testgpu.OneThread, x, uint64(1), uint32(2))} {
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
	require.NoError(t, p.Launch(d.DefaultStream(), testgpu.OneThread))
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
	for _, err := range []error{lookup, attribute, prepare, k.Launch(s, testgpu.OneThread), p.Launch(s, testgpu.OneThread), p.Set(0, int8(0)),
		(&cuda.Kernel{}).Launch(s, testgpu.OneThread), (&cuda.PreparedKernel{}).Launch(s, testgpu.OneThread)} {
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
	x, out := testgpu.RandomFloats(t, d, n), testgpu.AllocHost[float32](t, d, n)
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

func TestLaunchConfig(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.LaunchKernel = func(driver.Func, uint32, uint32, uint32, uint32, uint32, uint32, uint32, driver.Stream, unsafe.Pointer, unsafe.Pointer) driver.Result {
			t.Error("the driver has seen it")
			return driver.Success
		}
	})
	s := testgpu.NewStream(t, d, nil)
	k := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_empty")
	x := cuda.Dim3{X: 1}
	for _, c := range []struct {
		says string
		cuda.LaunchConfig
	}{
		{"the grid's X is 0", cuda.LaunchConfig{Block: x}},
		{"the grid's X is -1", cuda.LaunchConfig{Grid: cuda.Dim3{X: -1}, Block: x}},
		{"the grid's Y is -2", cuda.LaunchConfig{Grid: cuda.Dim3{X: 1, Y: -2}, Block: x}},
		{"the block's X is 0", cuda.LaunchConfig{Grid: x}},
		{"the block's Z is 4294967296", cuda.LaunchConfig{Grid: x, Block: cuda.Dim3{X: 1, Z: 1 << 32}}},
		{"-1 bytes of shared memory", cuda.LaunchConfig{Grid: x, Block: x, SharedBytes: -1}},
		{"4294967296 bytes of shared memory", cuda.LaunchConfig{Grid: x, Block: x, SharedBytes: 1 << 32}},
		{"the grid's X is 0", cuda.Grid1D(0, 256)},
		{"the grid's X is 0", cuda.Grid1D(-1, 256)},
		{"the grid's X is 0", cuda.Grid1D(10, 0)},
	} {
		err := k.Launch(s, c.LaunchConfig)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "kernel purecuda_empty: "+c.says)
	}
	for _, c := range [][3]int{{1, 256, 1}, {256, 256, 1}, {257, 256, 2}, {math.MaxInt, 1024, 1 << 53}} {
		require.Equal(t, cuda.LaunchConfig{Grid: cuda.Dim3{X: c[2]}, Block: cuda.Dim3{X: c[1]}}, cuda.Grid1D(c[0], c[1]))
	}
}

// A kernel that fails takes the device with it. Only on the simulated one: a real
// device would be lost to the other tests.
func TestKernelFails(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte(kernels.PTX))
	require.NoError(t, err)
	k := testgpu.Kernel(t, m, "purecuda_trap")
	s := d.DefaultStream()
	require.NoError(t, k.Launch(s, testgpu.OneThread))
	require.ErrorIs(t, s.Synchronize(), cuda.ErrDeviceLost)
	err = k.Launch(s, testgpu.OneThread)
	require.ErrorIs(t, err, cuda.ErrDeviceLost)
	require.ErrorIs(t, err, driver.ErrorLaunchFailed)
	require.ErrorContains(t, err, "kernel purecuda_trap")
}
