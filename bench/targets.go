package main

// transition is the row of an empty call.
const transition = "transition"

// unitTransition is what an empty call into C costs, in nanoseconds, where the limits
// on times hold as they are. Where it costs more, they are higher by as much.
const unitTransition = 40

// bound is how a limit is meant.
type bound string

const (
	atMost  bound = "at most"
	under   bound = "under"
	atLeast bound = "at least"
)

// target is a promise about speed, and what became of it.
type target struct {
	// Title says of what: "over C: `e.Record(s)`".
	Title string
	// Every is what all targets with the same text say of one row each, or empty.
	Every string
	Bound bound
	Limit float64
	Unit  string // "ns", "µs" or "×"
	// Value is what was measured, if Measured.
	Value    float64
	Measured bool
	// C is what the value would be if this module took as long as C itself, or 0.
	C float64
}

// missed returns by how much the value is beyond the limit; not above 0 if the target
// is met.
func (t target) missed() float64 {
	if t.Bound == atLeast {
		return t.Limit - t.Value
	}
	return t.Value - t.Limit
}

// met tells whether the target is reached. One that was not measured is not.
func (t target) met() bool {
	return t.Measured && (t.missed() < 0 || t.missed() == 0 && t.Bound != under)
}

// missedByC tells whether C itself is below the limit, so that no way to call the driver
// could meet the target.
func (t target) missedByC() bool { return t.Bound == atLeast && t.C != 0 && t.C < t.Limit }

// targets returns all of them, in the order of the page.
func targets(r *results) []target {
	var ts []target
	add := func(title string, b bound, limit float64, unit string, value float64, ok bool) {
		ts = append(ts, target{Title: title, Bound: b, Limit: limit, Unit: unit, Value: value, Measured: ok})
	}
	scale := 1.0
	if cost, ok := r.overC(transition, "table"); ok {
		scale = max(1, cost/unitTransition)
	}
	for _, g := range []struct {
		limit float64
		rows  []string
	}{
		{60, []string{"record", "record-timing", "wait", "query", "stream-query", "elapsed"}},
		{90, []string{"wait-stream", "record-default", "wait-default", "query-default", "wait-stream-default"}},
	} {
		for _, row := range g.rows {
			value, ok := r.overC(row, "purecuda")
			add("over C: "+rowTitle(row), atMost, g.limit*scale, "ns", value, ok)
		}
	}
	for _, row := range []string{"launch", "copy-4"} {
		limit := 60 * scale
		if c := r.find(row, "C", 1); c != nil {
			limit = max(limit, 0.05*c.Time.Median)
		}
		value, ok := r.overC(row, "purecuda")
		add("over C: "+rowTitle(row), atMost, limit, "ns", value, ok)
	}
	value, ok := r.here("current-stream", "purecuda", 1)
	add("in all: "+rowTitle("current-stream"), atMost, 25*scale, "ns", value, ok)
	value, ok = r.slower("wait-stream", "PyTorch")
	add("PyTorch against purecuda: "+rowTitle("wait-stream"), atLeast, 8, "×", value, ok)
	ts = append(ts, everyRow(r, "the fastest Python library against purecuda, each row", 1.3, func(row string) (t target) {
		way, times := r.fastest(row)
		t = target{Title: way + " against purecuda: " + rowTitle(row), Value: times, Measured: way != ""}
		if m := r.find(row, way, 1); m != nil && m.TimesC != nil {
			t.C = m.TimesC.Median
		}
		return t
	})...)
	ts = append(ts, everyRow(r, "16 goroutines against 16 threads in C, each row", 0.95, func(row string) target {
		share, ok := r.share(row, 16)
		return target{Title: "16 goroutines: " + rowTitle(row), Value: share, Measured: ok}
	})...)
	add("from `Open` to the first event, without the driver", under, 2000, "µs", r.Start.Rest, r.Start != start{})
	add("to import the package", under, 100, "µs", r.Start.PackageInit, r.Start != start{})
	return ts
}

// everyRow returns a target for each row that measure has a value of, or, if there is
// none, one that was not measured. The empty call is what others are measured by, and
// has none.
func everyRow(r *results, what string, limit float64, measure func(row string) target) []target {
	var ts []target
	for _, row := range r.rowIDs() {
		if t := measure(row); t.Measured && row != transition {
			t.Every, t.Bound, t.Limit, t.Unit = what, atLeast, limit, "×"
			ts = append(ts, t)
		}
	}
	if ts == nil {
		ts = []target{{Title: what, Every: what, Bound: atLeast, Limit: limit, Unit: "×"}}
	}
	return ts
}
