//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/bench"
)

// twinRequest writes a request for a peer, on a driver that does next to nothing.
func twinRequest(t *testing.T) (file string) {
	library := emptyDriver(t, "cuMemAllocAsync(unsigned long long *p, size_t n, void *s) { (void)s; *p = (uintptr_t)malloc(n); return 0; }",
		"cuDeviceGetMemPool(void **pool, int d) { (void)d; *pool = (void *)0x30; return 0; }",
		"cuMemPoolSetAttribute(void) { return 0; }", "cuCtxSynchronize(void) { return 0; }",
		"cuModuleLoadData(void **m) { *m = (void *)0x40; return 0; }")
	loop, _, err := compile(t.TempDir())
	require.NoError(t, err)
	of := func(n int) map[string]int {
		all := make(map[string]int)
		for _, row := range bench.Rows() {
			all[row.ID] = n
		}
		return all
	}
	text, err := json.Marshal(request{
		Library: loop, Libcuda: library, Rounds: 60, Batches: of(3), Threads: []int{4, 1},
		ScaleRounds: 2, ScaleBatches: of(12), ScaleBatchesC: of(30), Kernel: "PTX", KernelName: "purecuda_empty",
	})
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "request.json")
	require.NoError(t, os.WriteFile(file, text, 0o666))
	return file
}

func TestPythonPeer(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	folder, err := filepath.Abs("peers")
	require.NoError(t, err)
	t.Setenv("PEERS", folder)
	p, rows := measurePeer(t.Context(), "CuPy", filepath.Join("testdata", "peer_test.py"), twinRequest(t))
	require.Empty(t, p.Absent, "%v", p.Missing)
	require.Equal(t, "why not", p.Missing["wait"])
	require.NotContains(t, p.Missing, "record")
	require.Len(t, rows, 2)
	for i, n := range []int{1, 4} {
		require.Equal(t, "record", rows[i].Row)
		require.Equal(t, n, rows[i].Threads)
		require.NotNil(t, rows[i].TimesC)
	}
}

func TestCgoPeer(t *testing.T) {
	request := twinRequest(t) // or there is no C compiler
	program := filepath.Join(t.TempDir(), "cgo-peer")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir, build.Env = "cgo", append(os.Environ(), "CGO_ENABLED=1")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	p, rows := measurePeer(t.Context(), "cgo", program, request)
	require.Empty(t, p.Absent)
	require.Len(t, p.Missing, 1)
	require.Contains(t, p.Missing, "current-stream")
	require.Len(t, rows, 2*(len(bench.Rows())-1))
	for _, m := range rows {
		require.NotNil(t, m.TimesC, m.Row)
	}
}
