package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
)

func TestBench(t *testing.T) {
	var gpu *cudatest.GPU
	r := try(t.Context(), simulated(1, func(g *cudatest.GPU, _ *driver.API) { gpu = g }), "bench -rounds 2")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	lines := strings.Split(r.stdout, "\n")
	assert.Equal(t, "device: Simulated GPU (simulated)", lines[1])
	assert.Regexp(t, `^call +ns, median +p10 to p90 +bare functions +difference$`, lines[3])
	for i, row := range bench.Rows() {
		times := ` +[0-9.]+ +[0-9.]+ to [0-9.]+ +[-0-9.]+ +[-0-9.]+ +\(simulated\)$`
		assert.Regexp(t, `^`+regexp.QuoteMeta(plain(row.Title))+times, lines[4+i])
	}
	for _, title := range []string{"e.Record(s)", "prepared.Launch(s, config), an empty kernel"} {
		for _, n := range []string{"1", "2", "4", "8", "16"} {
			assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(title)+` +`+n+` +[0-9.]+ +[-0-9.]+ +\(simulated\)$`, r.stdout)
		}
	}
	assert.True(t, strings.HasSuffix(r.stdout, "\nThe times are of a simulation, in which the host does the work; they say nothing about any GPU.\n"))
	assert.Eventually(t, func() bool { return len(gpu.Problems()) == 0 }, 5*time.Second, time.Millisecond, "left open")
}

// TestBenchOfReal checks that what is not simulated is not said to be.
func TestBenchOfReal(t *testing.T) {
	r := try(t.Context(), nvidia(cudatest.Config{Name: "GPU"}), "bench -rounds 1")
	require.Equal(t, exitOK, r.code, r.stderr)
	_, rest, _ := strings.Cut(r.stdout, "\n") // the first line names the library
	assert.True(t, strings.HasPrefix(rest, "device: GPU\n"))
	assert.NotContains(t, rest, "simulat")
	assert.NotContains(t, rest, "not measured")
	assert.Len(t, regexp.MustCompile(`\d to \d`).FindAllString(rest, -1), len(bench.Rows()), "a distribution for each row")
}

func TestBenchWithoutMemoryPools(t *testing.T) {
	r := try(t.Context(), nvidia(cudatest.Config{NoMemoryPools: true}), "bench -rounds 1")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Regexp(t, `(?m)^cuda.AllocAsync, b.Close\(\), 64 KiB +[0-9.]+ +[0-9.]+ to [0-9.]+ +- +-$`, r.stdout)
	assert.Contains(t, r.stdout, "\nnot measured: cuda.AllocAsync, b.Close(), 64 KiB by table: CUDA_ERROR_NOT_SUPPORTED")
}

func TestBenchLibrary(t *testing.T) {
	from := simulated(1, nil)
	var asked string
	from.cuda = func(library string) (*cuda.Driver, error) {
		asked = library
		return cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
	}
	r := try(t.Context(), from, "bench -rounds 1 -library /a/b")
	assert.Equal(t, exitOK, r.code, r.stderr)
	assert.Equal(t, "/a/b", asked)
}

func TestBenchReportsErrors(t *testing.T) {
	r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) { failingCopies(api, 0) }), "bench")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "purecuda bench (simulated): failed: copy-4 by purecuda: cuda: copy: CUDA_ERROR_INVALID_VALUE")

	r = try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
		alloc, n := api.MemHostAlloc, 0
		api.MemHostAlloc = func(bytes uint64, flags uint32) (p unsafe.Pointer, r driver.Result) {
			if n++; n > 3 {
				return nil, driver.ErrorOutOfMemory
			}
			return alloc(bytes, flags)
		}
	}), "bench")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "host buffer alloc: CUDA_ERROR_OUT_OF_MEMORY")

	r = try(t.Context(), nvidia(cudatest.Config{Devices: -1}), "bench -driver cuda")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "no CUDA device is there")
	assert.Contains(t, r.stderr, "purecuda bench -driver sim")
}

func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := try(ctx, simulated(1, nil), "bench")
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, "purecuda bench (simulated): failed: interrupted\n", r.stderr)
}

func TestBenchInterruptedWhileDeviceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := interrupted(t, "bench", 2*grace)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "interrupted\nthe device did not finish its work in another 5s, so nothing was closed")
		assert.NotContains(t, r.stdout, "p10")
	})
}

func TestNanoseconds(t *testing.T) {
	for ns, want := range map[float64]string{0: "0.0", 3.14: "3.1", 9.94: "9.9", 9.96: "10", 1234.5: "1234", -3.2: "-3.2", -42: "-42"} {
		assert.Equal(t, want, nanoseconds(ns))
	}
}
