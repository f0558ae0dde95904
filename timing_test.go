package cuda_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// TestMatmulTiming multiplies matrices for about two seconds, and wants the
// device's clock and the host's to agree within a twentieth.
func TestMatmulTiming(t *testing.T) {
	drv := testgpu.RealDriver(t)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	const n = 2048
	s := testgpu.NewStream(t, dev, nil)
	a, b, c := testgpu.Alloc[float32](t, dev, n*n), testgpu.Alloc[float32](t, dev, n*n), testgpu.Alloc[float32](t, dev, n*n)
	require.NoError(t, cuda.Fill(s, a, 0.5))
	require.NoError(t, cuda.Fill(s, b, 0.25))
	product, err := testgpu.Kernel(t, testgpu.Kernels(t, dev), "purecuda_matmul").Prepare(c, a, b, uint32(n), uint32(n), uint32(n))
	require.NoError(t, err)
	shape := cuda.LaunchConfig{Grid: cuda.Dim3{X: n / 64, Y: n / 64}, Block: cuda.Dim3{X: 256}}
	start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
	run := func(times int) (device, host time.Duration) {
		require.NoError(t, s.Synchronize())
		begin := time.Now()
		require.NoError(t, start.Record(s))
		for range times {
			require.NoError(t, product.Launch(s, shape))
		}
		require.NoError(t, end.Record(s))
		require.NoError(t, end.Synchronize())
		host = time.Since(begin)
		device, err := start.ElapsedTime(end)
		require.NoError(t, err)
		return device, host
	}
	run(10) // the device warms up
	once, _ := run(10)
	times := int(2 * time.Second / (once / 10))
	device, host := run(times)
	t.Logf("%d products of %d×%d: %v by events, %v by the host's clock, %.1f TFLOP/s",
		times, n, n, device, host, 2*n*n*n*float64(times)/float64(device.Nanoseconds())/1e3)
	require.InEpsilon(t, host.Seconds(), device.Seconds(), 0.05)
	require.Greater(t, device, time.Second, "not a long run")

	out := make([]float32, n*n)
	require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, c))
	for i, v := range out {
		if math.Abs(float64(v)-n*0.125) > 1e-3 {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}
