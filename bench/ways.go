//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"math"
	"slices"
	"time"

	"github.com/purecuda/cuda/internal/bench"
)

// ways returns the ways to do a row's operation on one thread.
func (m *meter) ways(row *bench.Row) ([]*bench.Way, error) {
	f := m.fixtures[0]
	var ways []*bench.Way
	if row.Calls != nil {
		calls, err := m.driver.calls(row.Calls(f))
		if err != nil {
			return nil, err
		}
		registered, err := registerFunc(calls)
		if err != nil {
			return nil, err
		}
		ways = append(ways,
			&bench.Way{Row: row, Name: "C", N: row.Batch, Do: m.inC(calls)},
			&bench.Way{Row: row, Name: "SyscallN", N: row.Batch, Do: f.Bare(syscallN(calls))},
			&bench.Way{Row: row, Name: "RegisterFunc", N: row.Batch, Do: f.Bare(registered)})
	}
	if table := row.ByTable(f); table != nil {
		ways = append(ways, table)
	}
	return append(ways, row.ByMethod(f)), nil
}

// inC does the calls in the C loop, which takes the time itself.
func (m *meter) inC(calls []ccall) func(n int) (time.Duration, error) {
	var took time.Duration
	do := m.fixtures[0].Bare(func(n int) (err error) {
		took, err = m.loop.run(calls, n)
		return err
	})
	return func(n int) (time.Duration, error) {
		_, err := do(n)
		return took, err
	}
}

// scaleWays returns the ways to do a row's operation on several threads, each on
// objects of its own.
func (m *meter) scaleWays(row *bench.Row, threads int) ([]*bench.Way, error) {
	var ways []*bench.Way
	if row.Calls != nil {
		var all []ccall
		for _, f := range m.fixtures[:threads] {
			calls, err := m.driver.calls(row.Calls(f))
			if err != nil {
				return nil, err
			}
			all = append(all, calls...)
		}
		setCurrent, err := m.driver.find("cuCtxSetCurrent")
		if err != nil {
			return nil, err
		}
		ways = append(ways, &bench.Way{Row: row, Name: "C", N: row.ParallelBatch(),
			Do: func(n int) (time.Duration, error) {
				return m.loop.runThreads(all, threads, n, setCurrent, m.context)
			}})
	}
	return append(ways, row.ByGoroutines(m.fixtures[:threads])), nil
}

// inResults returns the distributions of ways, of those that have no failure.
func inResults(ways []*bench.Way, threads int) []measured {
	var all []measured
	var c *bench.Way // of the row at hand: it is the first
	for _, w := range ways {
		if c == nil || c.Row != w.Row {
			c = w
		}
		switch {
		case w.Missing != nil || len(w.NS) == 0:
		case w == c || c.Name != "C":
			all = append(all, newMeasured(w.Row.ID, threads, w.Name, w.NS, nil))
		default:
			all = append(all, newMeasured(w.Row.ID, threads, w.Name, w.NS, c.NS))
		}
	}
	return all
}

// newMeasured makes the distributions of a way's times, and of those of the C loop,
// if it was measured in the same rounds.
func newMeasured(row string, threads int, way string, times, c []float64) measured {
	m := measured{Row: row, Threads: threads, Way: way}
	if len(c) == len(times) {
		var over, ratio []float64
		for i, t := range times {
			over = append(over, t-c[i])
			ratio = append(ratio, t/c[i])
		}
		m.C, m.OverC, m.TimesC = dist(c), dist(over), distOfRatios(ratio)
	}
	m.Time = *dist(times)
	return m
}

// dist is of times. It leaves the values in their order, and out of the file the digits
// that mean nothing: those below 0.1, and of long times those below 1.
func dist(values []float64) *bench.Dist {
	return rounded(values, func(v float64) float64 {
		if math.Abs(v) < 100 {
			return math.Round(v*10) / 10
		}
		return math.Round(v)
	})
}

func distOfRatios(values []float64) *bench.Dist {
	return rounded(values, func(v float64) float64 { return math.Round(v*1000) / 1000 })
}

func rounded(values []float64, round func(float64) float64) *bench.Dist {
	d := bench.NewDist(slices.Clone(values))
	return &bench.Dist{P10: round(d.P10), Median: round(d.Median), P90: round(d.P90)}
}
