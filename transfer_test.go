package cuda_test

import (
	"bufio"
	_ "embed"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/ccall/testlib"
	"github.com/purecuda/cuda/internal/testgpu"
)

//go:embed testdata/transfer.c
var transferSource string

// TestTransferAsFastAsC copies 100 MB from pinned memory to the device, in turns
// with a C program that makes the same driver calls, and wants nine tenths of its
// speed. Both take their best of many rounds, by the device's clock and by the
// host's.
func TestTransferAsFastAsC(t *testing.T) {
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
