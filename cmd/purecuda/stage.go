package main

import (
	"fmt"
	"time"

	"github.com/purecuda/cuda"
)

// stage is one kind of work of the pipeline, timed by an event before and an
// event after each piece of it.
type stage struct {
	stream string
	device int
	name   string
	unit   unit
	amount uint64 // of the unit, in all
	// external makes the events nodes of the graph that is captured, so that they
	// time its launches.
	external bool
	spans    []span
}

// unit is what the work of a stage is counted in.
type unit int

const (
	ofBytes unit = iota
	ofFLOP       // floating-point operations
)

type span struct{ start, end *cuda.Event }

// span makes the events for another piece of work.
func (st *stage) span(amount uint64) span {
	opts := &cuda.EventOptions{Timing: true, External: st.external}
	t := span{cuda.NewEvent(opts), cuda.NewEvent(opts)}
	st.spans = append(st.spans, t)
	st.amount += amount
	return t
}

// do enqueues work on s between two events. Waits for other streams belong
// before it: the start is when the stream gets here, and not earlier.
func (st *stage) do(s *cuda.Stream, amount uint64, work func() error) error {
	t := st.span(amount)
	for _, step := range []func() error{
		func() error { return t.start.Record(s) },
		work,
		func() error { return t.end.Record(s) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

// took returns how long the stage's work took in all, when it was done last. It
// must be done.
func (st *stage) took() (time.Duration, error) {
	var sum time.Duration
	for _, t := range st.spans {
		d, err := t.start.ElapsedTime(t.end)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", st.name, err)
		}
		sum += d
	}
	return sum, nil
}

// close closes the stage's events.
func (st *stage) close() error {
	var first error
	for _, t := range st.spans {
		for _, e := range []*cuda.Event{t.start, t.end} {
			if err := e.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}
