package bench

import "time"

// Way is one way to do a row's operation, and how long that took.
type Way struct {
	Row  *Row
	Name string
	// N is the number of operations in a sample.
	N int
	// Do does the operation n times and says how long it took. Several threads do it n
	// times each.
	Do func(n int) (time.Duration, error)
	// NS has the nanoseconds of one operation, round by round: those of two ways in the
	// same round were measured beside each other.
	NS []float64
	// Missing is why there are no times: what this driver or this device cannot do.
	Missing error
}

// ByMethod does the row by the public methods.
func (r *Row) ByMethod(f *Fixture) *Way {
	return &Way{Row: r, Name: "purecuda", N: r.Batch, Do: Timed(r.method(f))}
}

// ByTable does the row by the bare driver functions. It is nil if the row has none.
func (r *Row) ByTable(f *Fixture) *Way {
	if r.Table == nil {
		return nil
	}
	return &Way{Row: r, Name: "table", N: r.Batch, Do: f.Bare(func(n int) error { return r.Table(f, n).Err() })}
}

// ByGoroutines does the row by the public methods in as many goroutines as there are
// fixtures. They are not bound to threads, as a program's are not.
func (r *Row) ByGoroutines(fixtures []*Fixture) *Way {
	do := make([]func(int) error, len(fixtures))
	for i, f := range fixtures {
		do[i] = r.method(f)
	}
	return &Way{Row: r, Name: "purecuda", N: r.ParallelBatch(),
		Do: func(n int) (time.Duration, error) { return Together(n, do) }}
}

func (r *Row) method(f *Fixture) func(int) error {
	return func(n int) error { return r.Method(f, n) }
}

// Timed returns do with the time that it takes.
func Timed(do func(n int) error) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		begin := time.Now()
		err := do(n)
		return time.Since(begin), err
	}
}
