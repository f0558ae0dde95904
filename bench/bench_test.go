//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

// emptyDriver compiles a driver library whose functions do next to nothing: that of
// the root package's tests, with functions of its own in place of some of it.
func emptyDriver(t *testing.T, functions ...string) string {
	text, err := os.ReadFile(filepath.FromSlash("../testdata/driver.c"))
	require.NoError(t, err)
	functions = append(functions, "cuCtxSetCurrent(void *c) { contexts[0] = c, depth = 1; return 0; }")
	source, own := string(text), ""
	for _, f := range functions {
		name, _, _ := strings.Cut(f, "(")
		source = fmt.Sprintf("#define %s replaced_%[1]s\n", name) + source
		own += fmt.Sprintf("#undef %s\nCUresult %s\n", name, f)
	}
	source += own
	for _, f := range driver.Functions {
		if !strings.Contains(source, " "+f.Symbol+"(") {
			source += fmt.Sprintf("CUresult %s(void) { return 0; }\n", f.Symbol)
		}
	}
	return testlib.Compile(t, source)
}

// withThreads lets a test be quicker.
func withThreads(t *testing.T, numbers ...int) {
	before := threads
	threads = numbers
	t.Cleanup(func() { threads = before })
}

// runBench runs the command and returns its exit status, what it wrote and what it said.
func runBench(t *testing.T, args ...string) (status int, r *results, said string) {
	dir := t.TempDir()
	var stderr strings.Builder
	status = run(append([]string{"-o", dir, "-quick", "-rounds", "2"}, args...), &stderr)
	if text, err := os.ReadFile(filepath.Join(dir, "performance.json")); err == nil {
		r = new(results)
		require.NoError(t, json.Unmarshal(text, r))
		require.FileExists(t, filepath.Join(dir, "performance.md"))
		require.FileExists(t, filepath.Join(dir, "performance.svg"))
	}
	return status, r, stderr.String()
}

func TestCommand(t *testing.T) {
	withThreads(t, 1, 2, 16)
	peer := fakePeer(t, "echo '"+document+"'")
	status, r, said := runBench(t, "-library", emptyDriver(t), "-peers", filepath.Dir(peer))
	require.Zero(t, status, said)
	require.NotNil(t, r, said)

	require.NotEmpty(t, r.Date)
	require.Equal(t, "bench -quick", r.Command)
	require.Equal(t, "13.0", r.Machine.CUDA)
	require.NotEmpty(t, r.Machine.Compiler)
	require.NotEmpty(t, r.Machine.Kernel)
	require.Positive(t, r.Machine.Cores)
	require.True(t, r.Machine.Pinned)
	require.Empty(t, boundThreads(t), "left bound")
	require.Positive(t, r.Start.Library)
	require.Positive(t, r.Start.Rest)

	type key struct {
		row, way string
		threads  int
	}
	got := make(map[key]measured)
	for _, m := range r.Rows {
		got[key{m.Row, m.Way, m.Threads}] = m
	}
	for _, row := range bench.Rows() {
		for _, n := range threads {
			ways := []string{"purecuda"}
			if row.Calls != nil {
				ways = append(ways, "C")
			}
			if row.Calls != nil && n == 1 {
				ways = append(ways, "SyscallN", "RegisterFunc", "table")
			}
			for _, way := range ways {
				m, ok := got[key{row.ID, way, n}]
				require.True(t, ok, "row %s by %s with %d threads", row.ID, way, n)
				require.Positive(t, m.Time.Median)
				require.Equal(t, row.Calls != nil && way != "C", m.OverC != nil, "%+v", m)
				require.Equal(t, row.Calls != nil && way != "C", m.TimesC != nil, "%+v", m)
			}
		}
	}
	require.Contains(t, got, key{"record", "cgo", 16})
	require.Len(t, r.Peers, len(peers))
}

// What fails is left out and said, the rest is measured, and the status is 1.
func TestRowFails(t *testing.T) {
	withThreads(t, 1, 2)
	library := emptyDriver(t, "cuEventElapsedTime_v2(void) { return 400; }")
	status, r, said := runBench(t, "-library", library)
	require.Equal(t, 1, status)
	require.NotNil(t, r, said)
	for _, way := range []string{"C", "SyscallN", "RegisterFunc", "table", "purecuda"} {
		require.Contains(t, said, "failed: row elapsed by "+way+" with 1 threads")
	}
	require.Contains(t, said, "failed: row elapsed by C with 2 threads")
	rows := make(map[string]int)
	for _, m := range r.Rows {
		rows[m.Row]++
	}
	require.Zero(t, rows["elapsed"])
	for _, row := range bench.Rows() {
		if row.ID != "elapsed" {
			require.Equal(t, rows["record"] > rows[row.ID], row.Calls == nil, row.ID)
		}
	}
}

func TestNothingToMeasure(t *testing.T) {
	status, r, said := runBench(t, "-library", filepath.Join(t.TempDir(), "nothing.so"))
	require.Equal(t, 1, status)
	require.Nil(t, r)
	require.NotEmpty(t, said)

	library := emptyDriver(t, "cuInit(void) { return 100; }")
	status, r, said = runBench(t, "-library", library)
	require.Equal(t, 1, status)
	require.Nil(t, r)
	require.Contains(t, said, "no CUDA device is there")

	var stderr strings.Builder
	for _, args := range [][]string{{}, {"-o", t.TempDir(), "more"}, {"-o", t.TempDir(), "-rounds", "0"}, {"-what"}} {
		require.Equal(t, 2, run(args, &stderr), "%v", args)
	}
}

func TestPackageInit(t *testing.T) {
	const trace = `init runtime @0.03 ms, 0.072 ms clock, 0 bytes, 0 allocs
init github.com/ebitengine/purego @0.81 ms, 0.048 ms clock, 4208 bytes, 70 allocs
init github.com/ebitengine/purego/internal/cgo @0.67 ms, 0.001 ms clock, 0 bytes, 0 allocs
init log/slog @1.1 ms, 0.5 ms clock, 176 bytes, 3 allocs
init github.com/purecuda/cuda/driver @1.1 ms, 0.008 ms clock, 5464 bytes, 4 allocs
init github.com/purecuda/cuda @1.2 ms, 0.002 ms clock, 0 bytes, 0 allocs
init github.com/purecuda/cuda/internal/bench @1.2 ms, 0.5 ms clock, 0 bytes, 0 allocs
init main @1.2 ms, 0.5 ms clock, 0 bytes, 0 allocs
`
	us, err := packageInit(trace)
	require.NoError(t, err)
	require.InDelta(t, 59, us, 1e-9)
	_, err = packageInit("")
	require.Error(t, err)
}

func TestBuiltByBundle(t *testing.T) {
	o := options{rounds: defaultRounds}
	require.Equal(t, "bench -rounds 300", o.command())
	built = "0123456 with uncommitted changes"
	defer func() { built = "" }()
	require.Equal(t, built, commit())
	require.Equal(t, "bundle/run bench", o.command())
	o.rounds = 30
	require.Equal(t, "bench -rounds 30", o.command())
}

func TestMachine(t *testing.T) {
	require.Equal(t, "580.159.04",
		moduleVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu Nov 20 17:24 2026\nGCC version: 12.2.0"))
	require.Equal(t, "580.159.04",
		moduleVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"))
	require.Empty(t, moduleVersion(""))
	require.Equal(t, "AMD EPYC", processor("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n"))
	require.NotEmpty(t, processor(""))
}
