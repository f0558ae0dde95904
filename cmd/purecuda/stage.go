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
	bytes  uint64
	spans  []span
}

type span struct{ start, end *cuda.Event }

func newSpan() span {
	return span{
		cuda.NewEvent(&cuda.EventOptions{Timing: true}),
		cuda.NewEvent(&cuda.EventOptions{Timing: true}),
	}
}

// do enqueues work on s between two events. Waits for other streams belong
// before it: the start is when the stream gets here, and not earlier.
func (st *stage) do(s *cuda.Stream, bytes uint64, work func() error) error {
	t := newSpan()
	st.spans = append(st.spans, t)
	st.bytes += bytes
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

// took returns how long the stage's work took in all. The work must be done.
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
