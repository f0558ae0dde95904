package stress_test

import (
	"bufio"
	_ "embed"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/ccall/testlib"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing memory that another stream uses delays no stream: a kernel at home, and a copy of
// its memory to the host on another stream, overlap. It prints what a round takes, and how
// large the pool has become.
func TestComputeAndCopyOut(t *testing.T) {
	skipShort(t)
	drv := testgpu.RealDriver(t)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	const rounds, size, spinning = 200, 16 << 20, 330_000
	home, reader := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	spin := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_spin")
	out := testgpu.AllocHost[byte](t, d, size)
	pool, err := d.MemoryPool()
	require.NoError(t, err)
	require.NoError(t, pool.Trim(0))
	require.NoError(t, pool.ResetHigh())
	took := func(compute, copied bool) time.Duration {
		began := time.Now()
		for range rounds {
			b, err := cuda.AllocAsync[byte](home, size)
			require.NoError(t, err)
			if compute {
				require.NoError(t, spin.Launch(home, cuda.Grid1D(1, 1), uint64(spinning)))
			}
			if copied {
				require.NoError(t, reader.WaitStream(home))
				require.NoError(t, cuda.Copy(reader, out, b))
			}
			require.NoError(t, b.Close())
		}
		require.NoError(t, home.Synchronize())
		require.NoError(t, reader.Synchronize())
		return time.Since(began) / rounds
	}
	took(true, true)
	alone, copying, both := took(true, false), took(false, true), took(true, true)
	stats, err := pool.Stats()
	require.NoError(t, err)
	t.Logf("a round: kernel alone %v, copy alone %v, both %v; the pool has reserved %d MiB at most", alone, copying, both, stats.ReservedHigh>>20)
	require.Less(t, both, alone+copying, "they overlap")
	testgpu.CollectUntil(t, func() bool { return drv.Stats().Buffers == 0 })
}

// TestMatmulTiming multiplies matrices for about two seconds, and wants the
// device's clock and the host's to agree within a twentieth.
func TestMatmulTiming(t *testing.T) {
	skipShort(t)
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

//go:embed testdata/transfer.c
var transferSource string

// TestTransferAsFastAsC copies 100 MB from pinned memory to the device, in turns
// with a C program that makes the same driver calls, and wants nine tenths of its
// speed. Both take their best of many rounds, by the device's clock and by the
// host's.
func TestTransferAsFastAsC(t *testing.T) {
	skipShort(t)
	drv := testgpu.RealDriver(t)
	const bytes = 5000 * 5000 * 4
	cmd := exec.Command(testlib.Program(t, transferSource, "-ldl"), drv.Library(), strconv.Itoa(bytes))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		require.NoError(t, cmd.Wait())
	})
	lines := bufio.NewScanner(out)

	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s := testgpu.NewStream(t, dev, nil)
	host, x := testgpu.AllocHost[float32](t, dev, bytes/4), testgpu.Alloc[float32](t, dev, bytes/4)
	for i := range host.Slice() {
		host.Slice()[i] = float32(i)
	}
	start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
	measure := func() (device, wall time.Duration) {
		device, wall = time.Hour, time.Hour
		for range 20 {
			begin := time.Now()
			require.NoError(t, start.Record(s))
			require.NoError(t, cuda.Copy(s, x, host))
			require.NoError(t, end.Record(s))
			require.NoError(t, s.Synchronize())
			wall = min(wall, time.Since(begin))
			d, err := start.ElapsedTime(end)
			require.NoError(t, err)
			device = min(device, d)
		}
		return device, wall
	}
	c := func() (device, wall time.Duration) {
		_, err := fmt.Fprintln(in)
		require.NoError(t, err)
		require.True(t, lines.Scan(), "the C program ended: %v", lines.Err())
		var d, w float64
		_, err = fmt.Sscan(lines.Text(), &d, &w)
		require.NoError(t, err)
		return time.Duration(d * 1e6), time.Duration(w * 1e6)
	}

	ours, ourWall, theirs, theirWall := time.Hour, time.Hour, time.Hour, time.Hour
	for range 5 {
		d, w := measure()
		ours, ourWall = min(ours, d), min(ourWall, w)
		d, w = c()
		theirs, theirWall = min(theirs, d), min(theirWall, w)
	}
	rate := func(d time.Duration) float64 { return bytes / float64(d.Nanoseconds()) }
	t.Logf("100 MB: %.2f GB/s here and %.2f in C by the device's clock, %.2f and %.2f by the host's",
		rate(ours), rate(theirs), rate(ourWall), rate(theirWall))
	require.GreaterOrEqual(t, rate(ours), 0.9*rate(theirs))
	require.GreaterOrEqual(t, rate(ourWall), 0.9*rate(theirWall))
}
