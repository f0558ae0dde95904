package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
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
