package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/bench"
)

// overC is a row's median over C, where C takes 1000 ns.
func overC(row, way string, ns float64) measured {
	return measured{Row: row, Threads: 1, Way: way, Time: bench.Dist{Median: 1000 + ns},
		OverC: &bench.Dist{Median: ns}, TimesC: &bench.Dist{Median: 1 + ns/1000}}
}

func find(t *testing.T, ts []target, title string) target {
	for _, x := range ts {
		if x.Title == title {
			return x
		}
	}
	require.Fail(t, "no such target", title)
	return target{}
}

func TestTargets(t *testing.T) {
	ts := targets(&results{Rows: []measured{
		overC("record", "purecuda", 60), overC("query", "purecuda", 60.5), overC("wait-stream", "purecuda", 60.5),
		{Row: "launch", Threads: 1, Way: "C", Time: bench.Dist{Median: 2000}}, overC("launch", "purecuda", 100),
		{Row: "copy-4", Threads: 1, Way: "C", Time: bench.Dist{Median: 500}}, overC("copy-4", "purecuda", 100),
		{Row: "current-stream", Threads: 1, Way: "purecuda", Time: bench.Dist{Median: 3}},
		{Row: "record", Threads: 16, Way: "purecuda", TimesC: &bench.Dist{Median: 1.1}},
		overC("record", "CuPy", 300), overC("record", "PyTorch", 900), overC("wait-stream", "PyTorch", 9000),
	}, Start: start{Rest: 2000, PackageInit: 99}})
	for title, met := range map[string]bool{
		"over C: `e.Record(s)`":                                true,
		"over C: `e.Query()`":                                  false,
		"over C: `e.Wait(s)`":                                  false, // not measured
		"over C: " + rowTitle("wait-stream"):                   true,
		"over C: " + rowTitle("launch"):                        true, // 5 % of C
		"over C: " + rowTitle("copy-4"):                        false,
		"in all: `dev.CurrentStream(ctx)`":                     true,
		"PyTorch against purecuda: " + rowTitle("wait-stream"): true,
		"CuPy against purecuda: `e.Record(s)`":                 false,
		"16 goroutines: `e.Record(s)`":                         false,
		"from `Open` to the first event, without the driver":   false,
		"to import the package":                                true,
	} {
		require.Equal(t, met, find(t, ts, title).met(), title)
	}
	require.InDelta(t, 0.5, find(t, ts, "over C: `e.Query()`").missed(), 1e-9)
	require.InDelta(t, 0.95-1/1.1, find(t, ts, "16 goroutines: `e.Record(s)`").missed(), 1e-9)
}

// Where C itself is not much faster than a Python library, the table says so.
func TestTargetThatCMisses(t *testing.T) {
	rows := targetRows(everyRow(&results{Rows: []measured{
		overC("record", "CuPy", 100), overC("query", "CuPy", 400), overC("wait", "CuPy", 500),
	}}, "each", 1.3, func(row string) target {
		return target{Title: row, Value: 1, C: map[string]float64{"record": 1.1, "query": 1.4}[row], Measured: row != "wait"}
	}))
	require.Equal(t, [][]string{
		{"each", "at least 1.30 ×", "1.00 × and more", "**missed by 2 of 2**; C itself misses it in 1"},
		{"record", "at least 1.30 ×", "1.00 ×", "**missed by 0.30 ×**; C itself: 1.10 ×"},
		{"query", "at least 1.30 ×", "1.00 ×", "**missed by 0.30 ×**"},
	}, rows)

	ts := targets(&results{Rows: []measured{overC("record", "purecuda", 50), overC("record", "CuPy", 200), overC("record", "PyTorch", 100)}})
	require.InDelta(t, 1.1, find(t, ts, "PyTorch against purecuda: `e.Record(s)`").C, 1e-9)
}

// On a slower machine the limits in nanoseconds are higher, on a faster one not lower.
func TestLimitsFollowTheEmptyCall(t *testing.T) {
	for cost, limit := range map[float64]float64{20: 60, 40: 60, 80: 120} {
		ts := targets(&results{Rows: []measured{overC(transition, "table", cost)}})
		require.InDelta(t, limit, find(t, ts, "over C: `e.Record(s)`").Limit, 1e-9)
		require.InDelta(t, limit*25/60, find(t, ts, "in all: `dev.CurrentStream(ctx)`").Limit, 1e-9)
		require.InDelta(t, 8, find(t, ts, "PyTorch against purecuda: "+rowTitle("wait-stream")).Limit, 1e-9)
	}
}

// The empty call is the unit, and gets no target of its own.
func TestEmptyCallHasNoTarget(t *testing.T) {
	ts := targets(&results{Rows: []measured{
		overC(transition, "purecuda", 40), overC(transition, "CuPy", 41),
		{Row: transition, Threads: 16, Way: "purecuda", TimesC: &bench.Dist{Median: 6}},
	}})
	for _, x := range ts {
		require.False(t, x.Measured, x.Title)
	}
}
