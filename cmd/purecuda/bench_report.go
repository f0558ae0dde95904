package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/purecuda/cuda/internal/bench"
)

// printCalls writes the table of single calls. A label ends each line that has a
// time of a simulation.
func (b *benchRun) printCalls(w io.Writer, lines []benchLine) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "call\tns, median\tp10 to p90\tbare functions\tdifference")
	var missing []*bench.Way
	for _, l := range lines {
		times := [4]string{"-", "-", "-", "-"}
		method := bench.NewDist(slices.Clone(l.method.NS))
		if method != nil {
			times[0], times[1] = nanoseconds(method.Median), nanoseconds(method.P10)+" to "+nanoseconds(method.P90)
		} else {
			missing = append(missing, l.method)
		}
		switch {
		case l.table == nil:
		case l.table.Missing != nil:
			missing = append(missing, l.table)
		default:
			times[2] = nanoseconds(bench.NewDist(slices.Clone(l.table.NS)).Median)
			if method != nil {
				times[3] = nanoseconds(bench.NewDist(differences(l.method.NS, l.table.NS)).Median)
			}
		}
		fmt.Fprintf(tw, "%s\t%s%s\n", plain(l.method.Row.Title), strings.Join(times[:], "\t"), b.column())
	}
	tw.Flush()
	for _, m := range missing {
		fmt.Fprintf(w, "not measured: %s by %s: %v\n", plain(m.Row.Title), m.Name, m.Missing)
	}
}

// printParallel writes the table of calls by several goroutines.
func (b *benchRun) printParallel(w io.Writer, ways []*bench.Way) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "call\tgoroutines, each on its stream\tns of each\tmillions per second in all")
	for i, way := range ways {
		n := goroutines[i%len(goroutines)]
		each, rate := "-", "-"
		if d := bench.NewDist(slices.Clone(way.NS)); d != nil {
			each = nanoseconds(d.Median)
			if d.Median > 0 {
				rate = strconv.FormatFloat(float64(n)/d.Median*1e3, 'f', 2, 64)
			}
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s%s\n", plain(way.Row.Title), n, each, rate, b.column())
	}
	tw.Flush()
}

// column returns the label as a last column.
func (b *benchRun) column() string {
	if b.simulated {
		return "\t" + strings.TrimSpace(b.mark())
	}
	return ""
}

// differences subtracts round by round: what was measured side by side.
func differences(a, b []float64) []float64 {
	var d []float64
	for i := range a {
		d = append(d, a[i]-b[i])
	}
	return d
}

// nanoseconds writes small times with one decimal.
func nanoseconds(ns float64) string {
	if ns > -9.95 && ns < 9.95 {
		return strconv.FormatFloat(ns, 'f', 1, 64)
	}
	return strconv.FormatFloat(ns, 'f', 0, 64)
}

// plain returns a title, which is Markdown, as text.
func plain(title string) string { return strings.ReplaceAll(title, "`", "") }
