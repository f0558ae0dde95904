package rules_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestLaunch(t *testing.T) {
	testgpu.Rule(t, "01 kernels run in the order of their stream", 1, func(t *testing.T, b *testgpu.Backend) {
		m := testgpu.Kernels(t, b.Device())
		fill, check := testgpu.Kernel(t, m, "purecuda_fill"), testgpu.Kernel(t, m, "purecuda_check")
		n := 1<<16 + 3
		c := cuda.Grid1D(n, 256)
		for _, s := range []*cuda.Stream{testgpu.NewStream(t, b.Device(), nil), b.Device().DefaultStream()} {
			x, wrong := testgpu.Alloc[uint32](t, b.Device(), n), testgpu.AllocHost[uint32](t, b.Device(), 2)
			clear(wrong.Slice())
			second, err := wrong.Range(1, 2)
			require.NoError(t, err)
			require.NoError(t, fill.Launch(s, c, x, uint64(n), uint32(7)))
			require.NoError(t, check.Launch(s, c, x, uint64(n), uint32(7), wrong))
			require.NoError(t, fill.Launch(s, c, x, uint64(3), uint32(8)))
			require.NoError(t, check.Launch(s, c, x, uint64(n), uint32(7), second))
			require.NoError(t, s.Synchronize())
			require.Equal(t, []uint32{0, 3}, wrong.Slice())
		}
	})

	testgpu.Rule(t, "01 a kernel adds vectors", 1, func(t *testing.T, b *testgpu.Backend) {
		s, n := testgpu.NewStream(t, b.Device(), nil), 1001
		x, y, sum := testgpu.RandomFloats(t, b.Device(), n), testgpu.RandomFloats(t, b.Device(), n), testgpu.AllocHost[float32](t, b.Device(), n)
		add := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_add")
		require.NoError(t, add.Launch(s, cuda.Grid1D(n, 128), sum, x, y, uint64(n)))
		require.NoError(t, s.Synchronize())
		for i := range n {
			require.Equal(t, x.Slice()[i]+y.Slice()[i], sum.Slice()[i])
		}
	})

	testgpu.Rule(t, "01 a kernel takes a struct with buffers", 1, func(t *testing.T, b *testgpu.Backend) {
		s, n := testgpu.NewStream(t, b.Device(), nil), 100
		src, dst, out := testgpu.RandomFloats(t, b.Device(), n), testgpu.Alloc[float32](t, b.Device(), n), testgpu.AllocHost[float32](t, b.Device(), n)
		type args struct {
			dst           *cuda.Buffer[float32]
			src           *cuda.HostBuffer[float32]
			scale, offset float32
			n             uint64
		}
		affine := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_affine")
		require.NoError(t, affine.Launch(s, cuda.Grid1D(n, 32), args{dst, src, 4, 0.5, uint64(n)}))
		require.NoError(t, cuda.Copy(s, out, dst))
		require.NoError(t, s.Synchronize())
		for i, v := range src.Slice() {
			require.InDelta(t, 4*v+0.5, out.Slice()[i], 1e-6)
		}
	})

	testgpu.Rule(t, "01 a kernel multiplies matrices", 1, func(t *testing.T, b *testgpu.Backend) {
		matmul := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_matmul")
		for _, size := range [][3]int{{1, 1, 1}, {64, 64, 16}, {65, 67, 33}, {130, 3, 200}, {2, 129, 1}} {
			t.Run(fmt.Sprint(size), func(t *testing.T) { multiplies(t, b.Device(), matmul, size[0], size[1], size[2]) })
		}
	})

	testgpu.Rule(t, "20 elapsed time is that of the kernel", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
		spin, err := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_spin").Prepare(uint64(5 * time.Millisecond))
		require.NoError(t, err)
		require.NoError(t, start.Record(s))
		for range 3 {
			require.NoError(t, spin.Launch(s, testgpu.OneThread))
		}
		require.NoError(t, end.Record(s))
		require.NoError(t, s.Synchronize())
		d, err := start.ElapsedTime(end)
		require.NoError(t, err)
		require.GreaterOrEqual(t, d, 15*time.Millisecond)
		require.Less(t, d, 50*time.Millisecond)
	})

	testgpu.Rule(t, "01 the blocks of a cooperative launch run at once", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		meet := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_rendezvous")
		each, err := meet.MaxActiveBlocks(128, 0)
		require.NoError(t, err)
		processors, err := b.Device().Attribute(driver.AttributeMultiprocessorCount)
		require.NoError(t, err)
		n := each * processors
		counter, arrived := testgpu.Alloc[uint32](t, b.Device(), 1), testgpu.AllocHost[uint32](t, b.Device(), n)
		clear(arrived.Slice())
		require.NoError(t, cuda.Fill(s, counter, 0))
		c := cuda.LaunchConfig{Grid: cuda.Dim3{X: n}, Block: cuda.Dim3{X: 128}, Cooperative: true}
		require.NoError(t, meet.Launch(s, c, counter, arrived))
		require.NoError(t, s.Synchronize())
		for _, v := range arrived.Slice() {
			require.Equal(t, uint32(1), v)
		}

		c.Grid.X++
		err = meet.Launch(s, c, counter, arrived)
		require.ErrorIs(t, err, driver.ErrorCooperativeLaunchTooLarge)
		require.ErrorContains(t, err, fmt.Sprintf("%d blocks of [128 1 1] threads fit on the device at once, the grid has [%d 1 1]", n, n+1))
	})

	testgpu.Rule(t, "09 a kernel runs on streams of its own device", 2, func(t *testing.T, b *testgpu.Backend) {
		s0, s1 := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		on1 := testgpu.Kernel(t, testgpu.Kernels(t, b.Devices[1]), "purecuda_empty")
		require.NoError(t, on1.Launch(s1, testgpu.OneThread))
		for _, s := range []*cuda.Stream{s0, b.Devices[0].DefaultStream()} {
			err := on1.Launch(s, testgpu.OneThread)
			require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
			require.ErrorContains(t, err, "of device 1, the stream of device 0")
		}
		_, other := testgpu.SimulatedDevice(t, nil)
		require.ErrorIs(t, on1.Launch(testgpu.NewStream(t, other, nil), testgpu.OneThread), cuda.ErrDeviceMismatch)
	})

	testgpu.Rule(t, "01 a launch that the device cannot do says why", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		k := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_empty")
		block := func(x, y, z int) cuda.LaunchConfig {
			return cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: x, Y: y, Z: z}}
		}
		shared := testgpu.OneThread
		shared.SharedBytes = 1 << 20
		for _, c := range []cuda.LaunchConfig{block(2048, 0, 0), block(32, 33, 1), block(1, 1, 65), shared,
			{Grid: cuda.Dim3{X: 1, Y: 70000}, Block: cuda.Dim3{X: 1}}} {
			err := k.Launch(s, c)
			require.ErrorIs(t, err, driver.ErrorInvalidValue)
			require.ErrorContains(t, err, "kernel purecuda_empty")
			require.ErrorContains(t, err, "blocks of this kernel can have up to 1024 threads and 49152 bytes")
		}
		require.NoError(t, k.Launch(s, block(16, 8, 8)))
	})
}

// multiplies compares with a product in float64. Each of k products and k sums in
// float32 is off by half an ulp at most, of at most the sum of what is added up.
func multiplies(t *testing.T, d *cuda.Device, matmul *cuda.Kernel, m, n, k int) {
	s := testgpu.NewStream(t, d, nil)
	x, y, z := testgpu.RandomFloats(t, d, m*k), testgpu.RandomFloats(t, d, k*n), testgpu.AllocHost[float32](t, d, m*n)
	c := cuda.LaunchConfig{Grid: cuda.Dim3{X: (n + 63) / 64, Y: (m + 63) / 64}, Block: cuda.Dim3{X: 256}}
	require.NoError(t, matmul.Launch(s, c, z, x, y, uint32(m), uint32(n), uint32(k)))
	require.NoError(t, s.Synchronize())
	for i := range m {
		for j := range n {
			sum, size := 0.0, 0.0
			for l := range k {
				p := float64(x.Slice()[i*k+l]) * float64(y.Slice()[l*n+j])
				sum, size = sum+p, size+math.Abs(p)
			}
			require.InDelta(t, sum, z.Slice()[i*n+j], float64(k+1)*0x1p-24*size, "row %d, column %d", i, j)
		}
	}
}

// One prepared kernel is launched by many goroutines at once, each on a stream of
// its own and all on one.
func TestPreparedKernelIsShared(t *testing.T) {
	testgpu.Rule(t, "01 goroutines share a prepared kernel", 1, func(t *testing.T, b *testgpu.Backend) {
		const goroutines, rounds, n = 8, 50, 1000
		src, wrong := testgpu.Alloc[uint32](t, b.Device(), n), testgpu.AllocHost[uint32](t, b.Device(), 1)
		clear(wrong.Slice())
		common := testgpu.NewStream(t, b.Device(), nil)
		require.NoError(t, cuda.Fill(common, src, 1))
		require.NoError(t, common.Synchronize())
		count, err := testgpu.Kernel(t, testgpu.Kernels(t, b.Device()), "purecuda_check").Prepare(cuda.Reads(src), uint64(n), uint32(2), cuda.Atomics(wrong))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range goroutines {
			own := testgpu.NewStream(t, b.Device(), nil)
			wg.Go(func() {
				for range rounds {
					for _, s := range []*cuda.Stream{own, common} {
						if err := count.Launch(s, cuda.Grid1D(n, 128)); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, b.Device().Synchronize())
		require.Equal(t, uint32(2*goroutines*rounds*n), wrong.Slice()[0])
	})
}
