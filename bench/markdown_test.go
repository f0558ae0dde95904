package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/bench"
)

func TestMarkdown(t *testing.T) {
	text := markdown(invented(t))
	for _, want := range []string{
		"2001-02-03 04:05 UTC, invented, driver invented, CUDA invented, go1.99 (invented), an invented &lt;processor>, 16 cores,",
		"`invented`.\nWhere one thread was measured, it was pinned to the quickest processor of the moment.\n",
		"\n- PyTorch invented\n",
		"\n- cuda.bindings, not measured: No module named 'invented'\n",
		// PyTorch took 2380 ns in a process whose C loop took 255.
		"| `e.Record(s)` | 150 | 198 (186 to 222) | 48 | 260 | 580 | 1400 | 460 | 340 | – | 195 |",
		"| `dev.CurrentStream(ctx)` | – | 3.1 (2.9 to 3.5) | – | – | – | 6200 | 410 | – | – | – |",
		"\n- PyTorch: records the default stream's twin (`e.Record(s)`, the default stream).\n",
		"\n- cuda.core is missing: no such method (`s.Query()`).\n",
		"| `e.Record(s)` | 1.72 × (cuda.core) | 7.1 × | 0.98 × |",
		"| `dev.CurrentStream(ctx)` | 132 × (CuPy) | 2000 × | – |",
		"| `e.Record(s)` | 76 % (5.05) | 99 % (6.95) | 99 % (7.14) | 99 % (7.23) | 99 % (7.28) |",
		"| `e.Record(s)` | 7.36 | 7.28 | 0.82 | 1.84 | – | – | 7.01 |",
		"| `cuInit` | 151000 |",
		"| over C: `e.Record(s)` | at most 60 ns | 48 ns | met |",
		"| over C: `e.Record(s)`, the default stream | at most 90 ns | 96 ns | **missed by 6.0 ns** |",
		"| over C: `e.Wait(s)`, the default stream | at most 90 ns | – | not measured |",
		"| the fastest Python library against purecuda, each row | at least 1.30 × | 1.06 × and more | **missed by 4 of 13**; C itself misses it in 4 |",
		"| cuda.core against purecuda: `e.Record(s)`, an event with timing | at least 1.30 × | 1.11 × | **missed by 0.19 ×**; C itself: 1.15 × |",
		"| call | purecuda | PyTorch | CuPy | cuda.core | cuda.bindings | cgo |\n|---|---:|---:|---:|---:|---:|---:|\n" +
			"| `drv.API().DriverGetVersion()` | – | – | – | – | – | 76 |\n| `e.Record(s)` | 48 | 2125 | 527 | 323 | – | 76 |\n",
	} {
		require.Contains(t, text, want)
	}
}

func TestTablesAreWhole(t *testing.T) {
	columns := 0
	for line := range strings.Lines(markdown(invented(t))) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(line, "|")
		if columns != 0 {
			require.Equal(t, columns, n, line)
		}
		columns = n
		require.NotContains(t, line, "NaN")
		require.NotContains(t, line, "Inf")
	}
}

func TestNothingMeasured(t *testing.T) {
	text := markdown(new(results))
	require.Contains(t, text, "in the C loop: was not measured.")
	require.NotContains(t, text, "it was pinned")
	require.Contains(t, text, "| over C: `e.Record(s)` | at most 60 ns | – | not measured |")
	require.Contains(t, text, "| 16 goroutines against 16 threads in C, each row | at least 0.95 × | – | not measured |")
	require.Contains(t, text, "| to import the package | under 100 µs | – | not measured |")
	require.NotContains(t, text, "NaN")
}

// A peer's time counts only by the C loop that ran beside it.
func TestHere(t *testing.T) {
	r := &results{Rows: []measured{
		{Row: "x", Threads: 1, Way: "C", Time: bench.Dist{Median: 100}},
		{Row: "x", Threads: 1, Way: "purecuda", Time: bench.Dist{Median: 150}, TimesC: &bench.Dist{Median: 1.5}},
		{Row: "x", Threads: 1, Way: "CuPy", Time: bench.Dist{Median: 900}, TimesC: &bench.Dist{Median: 3}},
		{Row: "x", Threads: 1, Way: "PyTorch", Time: bench.Dist{Median: 900}},
		{Row: "y", Threads: 1, Way: "CuPy", Time: bench.Dist{Median: 900}},
	}}
	for _, c := range []struct {
		row, way string
		ns       float64
		ok       bool
	}{
		{"x", "C", 100, true},
		{"x", "purecuda", 150, true},
		{"x", "CuPy", 300, true},
		{"x", "PyTorch", 0, false},
		{"y", "CuPy", 900, true},
		{"y", "purecuda", 0, false},
	} {
		ns, ok := r.here(c.row, c.way, 1)
		require.Equal(t, c.ok, ok, c)
		require.InDelta(t, c.ns, ns, 1e-9, c)
	}
	way, times := r.fastest("x")
	require.Equal(t, "CuPy", way)
	require.InDelta(t, 2, times, 1e-9)
	way, _ = r.fastest("y")
	require.Empty(t, way)
}

func TestInline(t *testing.T) {
	require.Equal(t, "a &lt;class 'b'> in one line", inline("a <class 'b'>\n\tin one  line\n"))
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0", 3.14: "3.1", 19.94: "19.9", 20.4: "20", -3.12: "−3.1", -45.2: "−45", 12345.6: "12346"} {
		require.Equal(t, want, number(v))
	}
	for v, want := range map[float64]string{0.951: "0.95 ×", 1.3: "1.30 ×", 8: "8.0 ×", 23.6: "24 ×"} {
		require.Equal(t, want, factor(v))
	}
	require.Equal(t, "8.00", million(16, 2000))
	require.Equal(t, none, million(16, 0))
}
