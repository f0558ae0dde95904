package main

import "slices"

// pythons are the libraries that the calls are compared with; peers has cgo, too.
var (
	pythons = []string{"PyTorch", "CuPy", "cuda.core", "cuda.bindings"}
	peers   = append(slices.Clone(pythons), "cgo")
)

// rowIDs returns the rows' ids in their order, once each.
func (r *results) rowIDs() []string {
	var ids []string
	for _, m := range r.Rows {
		if !slices.Contains(ids, m.Row) {
			ids = append(ids, m.Row)
		}
	}
	return ids
}

// find returns what was measured, or nil if it was not.
func (r *results) find(row, way string, threads int) *measured {
	for i := range r.Rows {
		if m := &r.Rows[i]; m.Row == row && m.Way == way && m.Threads == threads {
			return m
		}
	}
	return nil
}

// here returns how many nanoseconds an operation takes in the process that measures
// purecuda. A peer is in a process of its own, perhaps a slower one, so what it takes
// there is converted by the C loop that runs in both. Without C for the row, the time
// is taken as it is.
func (r *results) here(row, way string, threads int) (ns float64, ok bool) {
	m := r.find(row, way, threads)
	if m == nil {
		return 0, false
	}
	c := r.find(row, "C", threads)
	if !slices.Contains(peers, way) || c == nil && m.TimesC == nil {
		return m.Time.Median, true
	}
	if c == nil || m.TimesC == nil {
		return 0, false
	}
	return m.TimesC.Median * c.Time.Median, true
}

// overC returns by how many nanoseconds a way takes longer than C, on one thread.
func (r *results) overC(row, way string) (ns float64, ok bool) {
	m := r.find(row, way, 1)
	if m == nil || m.OverC == nil {
		return 0, false
	}
	return m.OverC.Median, true
}

// slower returns how many times as long as purecuda a peer takes on one thread, each
// measured by the C loop of its process, or by the clock if C has nothing to do.
func (r *results) slower(row, way string) (times float64, ok bool) {
	ours, theirs := r.find(row, "purecuda", 1), r.find(row, way, 1)
	switch {
	case ours == nil || theirs == nil:
		return 0, false
	case ours.TimesC != nil && theirs.TimesC != nil:
		return theirs.TimesC.Median / ours.TimesC.Median, true
	case ours.TimesC == nil && theirs.TimesC == nil:
		return theirs.Time.Median / ours.Time.Median, true
	}
	return 0, false
}

// fastest returns which of the Python libraries takes the least time, and how many
// times as long as purecuda; "" if none was measured.
func (r *results) fastest(row string) (way string, times float64) {
	for _, p := range pythons {
		if t, ok := r.slower(row, p); ok && (way == "" || t < times) {
			way, times = p, t
		}
	}
	return way, times
}

// share returns how much of the operations that C threads do purecuda does with as
// many goroutines.
func (r *results) share(row string, threads int) (share float64, ok bool) {
	m := r.find(row, "purecuda", threads)
	if m == nil || m.TimesC == nil {
		return 0, false
	}
	return 1 / m.TimesC.Median, true
}
