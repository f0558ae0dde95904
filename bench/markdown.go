package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// none stands in a table for what was not measured.
const none = "–"

// markdown returns the tables of r, without a title, in headings of the third level.
func markdown(r *results) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s UTC, %s, driver %s, CUDA %s, %s, %s, %d cores, Linux %s, the C loop compiled by %s, commit %s, `%s`.\n",
		r.Date, m.Device, m.Driver, m.CUDA, r.Go, inline(m.Processor), m.Cores, m.Kernel, inline(m.Compiler), r.Commit, r.Command)
	if m.Pinned {
		b.WriteString("Where one thread was measured, it was pinned to the quickest processor of the moment.\n")
	}
	if r.Peers != nil {
		b.WriteString("\nCompared with:\n\n")
	}
	for _, p := range r.Peers {
		text := strings.TrimSpace(p.Name + " " + p.Version)
		if p.Absent != "" {
			text += ", not measured: " + inline(p.Absent)
		}
		fmt.Fprintf(&b, "- %s\n", text)
	}
	b.WriteString("\n![What a call costs, as bars](performance.svg)\n")
	for _, section := range []func(*strings.Builder, *results){
		markdownCalls, markdownAdded, markdownFaster, markdownThreads, markdownStart, markdownTargets,
	} {
		b.WriteString("\n")
		section(&b, r)
	}
	return b.String()
}

// markdownTable writes a table whose first column is text and whose others are numbers.
func markdownTable(b *strings.Builder, head []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|---|%s\n", strings.Join(head, " | "), strings.Repeat("---:|", len(head)-1))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

func markdownCalls(b *strings.Builder, r *results) {
	b.WriteString("### What does a call cost on one thread?\n\nNanoseconds, medians.\n\n")
	ways := append([]string{"SyscallN", "RegisterFunc"}, peers...)
	var rows [][]string
	for _, id := range r.rowIDs() {
		row := []string{rowTitle(id), none, none, none}
		if v, ok := r.here(id, "C", 1); ok {
			row[1] = number(v)
		}
		if m := r.find(id, "purecuda", 1); m != nil {
			row[2] = fmt.Sprintf("%s (%s to %s)", number(m.Time.Median), number(m.Time.P10), number(m.Time.P90))
		}
		if v, ok := r.overC(id, "purecuda"); ok {
			row[3] = number(v)
		}
		for _, way := range ways {
			cell := none
			if v, ok := r.here(id, way, 1); ok {
				cell = number(v)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	markdownTable(b, append([]string{"call", "C", "purecuda", "purecuda − C"}, ways...), rows)
	b.WriteString(`
C, purecuda, SyscallN and RegisterFunc took turns in one process; in parentheses p10 to p90. "purecuda − C" is the median of the
differences in each turn, and not the difference of the medians. The libraries right of these ran in processes of their own,
each in turns with the same C loop. They are shown as so many times their own C loop, times the C of this table, because the
machine's speed differs by a factor of two between processes. Where C has nothing to do, their times are as they were.
`)
	markdownRemarks(b, r)
}

// markdownRemarks lists where a way does something else than the row says, or nothing,
// with the rows that have the same reason in one line.
func markdownRemarks(b *strings.Builder, r *results) {
	type remark struct{ who, why string }
	var order []remark
	rows := map[remark][]string{}
	add := func(who, why, id string) {
		m := remark{who, strings.TrimSuffix(inline(why), ".")}
		if rows[m] == nil {
			order = append(order, m)
		}
		rows[m] = append(rows[m], rowTitle(id))
	}
	for _, m := range r.Rows {
		if m.Note != "" && m.Threads == 1 {
			add(m.Way, m.Note, m.Row)
		}
	}
	for _, p := range r.Peers {
		for _, id := range r.rowIDs() {
			if why := p.Missing[id]; why != "" {
				add(p.Name+" is missing", why, id)
			}
		}
	}
	if order != nil {
		b.WriteString("\n")
	}
	for _, m := range order {
		fmt.Fprintf(b, "- %s: %s (%s).\n", m.who, m.why, strings.Join(rows[m], ", "))
	}
}

func markdownAdded(b *strings.Builder, r *results) {
	b.WriteString("### What do they add to C?\n\nNanoseconds, the medians of the differences to the C loop of the same process. " +
		"The driver's own time is not in them.\n\n")
	ways := append([]string{"purecuda"}, peers...)
	var rows [][]string
	for _, id := range r.rowIDs() {
		row := []string{rowTitle(id)}
		for _, way := range ways {
			cell := none
			if v, ok := r.overC(id, way); ok {
				cell = number(v)
			}
			row = append(row, cell)
		}
		if anyMeasured(row[1:]) {
			rows = append(rows, row)
		}
	}
	markdownTable(b, append([]string{"call"}, ways...), rows)
}

// anyMeasured tells whether one of the cells has a value.
func anyMeasured(cells []string) bool {
	return slices.ContainsFunc(cells, func(cell string) bool { return cell != none })
}

func markdownFaster(b *strings.Builder, r *results) {
	b.WriteString("### How many times as long do others take?\n\n")
	var rows [][]string
	for _, id := range r.rowIDs() {
		way, times := r.fastest(id)
		row := []string{rowTitle(id), none}
		if way != "" {
			row[1] = fmt.Sprintf("%s (%s)", factor(times), way)
		}
		for _, way := range []string{"PyTorch", "cgo"} {
			cell := none
			if v, ok := r.slower(id, way); ok {
				cell = factor(v)
			}
			row = append(row, cell)
		}
		if anyMeasured(row[1:]) {
			rows = append(rows, row)
		}
	}
	markdownTable(b, []string{"call", "the fastest Python library", "PyTorch", "cgo"}, rows)
	b.WriteString("\nTimes purecuda's time, both measured by the C loop of their process. Below 1 the other is faster.\n")
}

func markdownThreads(b *strings.Builder, r *results) {
	b.WriteString("### And with several goroutines?\n\n")
	threads := []int{1, 2, 4, 8, 16}
	head := []string{"call"}
	for _, n := range threads {
		head = append(head, fmt.Sprint(n))
	}
	ways := append([]string{"C", "purecuda"}, peers...)
	var shares, rates [][]string
	for _, id := range r.rowIDs() {
		share, rate := []string{rowTitle(id)}, []string{rowTitle(id)}
		for _, n := range threads {
			cell := none
			if m := r.find(id, "purecuda", n); m != nil {
				cell = fmt.Sprintf("(%s)", million(n, m.Time.Median))
				if v, ok := r.share(id, n); ok {
					cell = fmt.Sprintf("%.0f %% %s", 100*v, cell)
				}
			}
			share = append(share, cell)
		}
		for _, way := range ways {
			cell := none
			if v, ok := r.here(id, way, 16); ok {
				cell = million(16, v)
			}
			rate = append(rate, cell)
		}
		if anyMeasured(share[2:]) {
			shares, rates = append(shares, share), append(rates, rate)
		}
	}
	b.WriteString("Goroutines, each on a stream of its own: what they do in all, as a share of what as many threads in C do\n" +
		"in the same process; in parentheses million operations a second.\n\n")
	markdownTable(b, head, shares)
	b.WriteString("\n16 at once, million operations a second, those of other processes converted as above:\n\n")
	markdownTable(b, append([]string{"call"}, ways...), rates)
}

func markdownStart(b *strings.Builder, r *results) {
	s := r.Start
	b.WriteString("### What does it cost to begin?\n\n")
	markdownTable(b, []string{"", "µs"}, [][]string{
		{"to open the driver's library and find its functions", number(s.Library)},
		{"`cuInit`", number(s.Init)},
		{"to make the device's context", number(s.Context)},
		{"all else from `Open` to the first recorded event", number(s.Rest)},
		{"to initialise the packages that come with this one, by Go's `inittrace`", number(s.PackageInit)},
	})
}

func markdownTargets(b *strings.Builder, r *results) {
	b.WriteString("### Which targets are met?\n\n")
	cost := "was not measured"
	if v, ok := r.overC(transition, "table"); ok {
		cost = number(v) + " ns"
	}
	fmt.Fprintf(b, "The price of a call into C, which is what an empty one takes through the table of functions more than in the C loop: %s.\n"+
		"Limits in nanoseconds are for a machine where it is %d ns, and grow with it in proportion.\n\n", cost, unitTransition)
	var rows [][]string
	all := targets(r)
	for len(all) > 0 {
		n := 1
		for all[0].Every != "" && n < len(all) && all[n].Every == all[0].Every {
			n++
		}
		rows = append(rows, targetRows(all[:n])...)
		all = all[n:]
	}
	markdownTable(b, []string{"target", "limit", "measured", ""}, rows)
}

// targetRows returns a line for a target. Of many that say the same of each row, it
// returns one for all, and one for each that is missed.
func targetRows(ts []target) [][]string {
	t := ts[0]
	if t.Every == "" || !t.Measured {
		return [][]string{targetRow(t)}
	}
	least := slices.MinFunc(ts, func(a, b target) int { return cmp.Compare(a.Value, b.Value) })
	missed := slices.DeleteFunc(slices.Clone(ts), target.met)
	verdict := fmt.Sprintf("met by all %d", len(ts))
	if len(missed) > 0 {
		verdict = fmt.Sprintf("**missed by %d of %d**", len(missed), len(ts))
	}
	inC := slices.DeleteFunc(slices.Clone(ts), func(t target) bool { return !t.missedByC() })
	if len(inC) > 0 {
		verdict += fmt.Sprintf("; C itself misses it in %d", len(inC))
	}
	rows := [][]string{{t.Every, t.limit(), t.amount(least.Value) + " and more", verdict}}
	for _, m := range missed {
		rows = append(rows, targetRow(m))
	}
	return rows
}

func targetRow(t target) []string {
	switch {
	case !t.Measured:
		return []string{t.Title, t.limit(), none, "not measured"}
	case t.met():
		return []string{t.Title, t.limit(), t.amount(t.Value), "met"}
	}
	verdict := "**missed by " + t.amount(t.missed()) + "**"
	if t.missedByC() {
		verdict += "; C itself: " + t.amount(t.C)
	}
	return []string{t.Title, t.limit(), t.amount(t.Value), verdict}
}

func (t target) limit() string { return string(t.Bound) + " " + t.amount(t.Limit) }

func (t target) amount(v float64) string {
	if t.Unit == "×" {
		return factor(v)
	}
	return number(v) + " " + t.Unit
}
