//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
)

// threads are the numbers of threads that the rows are measured with.
var threads = []int{1, 2, 4, 8, 16}

// meter is what measures in this process.
type meter struct {
	driver   library
	loop     *cloop
	context  driver.Context
	fixtures []*bench.Fixture // one for each thread
	failed   []error          // of our own ways
	bound    bool             // the measuring thread was, to one processor at a time
	progress io.Writer
}

func newMeter(drv *cuda.Driver, loop string, progress io.Writer) (m *meter, err error) {
	m = &meter{progress: progress}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.driver, err = openLibrary(drv.Library()); err != nil {
		return m, err
	}
	if m.loop, err = openLoop(loop); err != nil {
		return m, err
	}
	dev, err := drv.OpenDevice(0)
	if err != nil {
		return m, err
	}
	for range threads[len(threads)-1] {
		f, err := bench.NewFixture(dev)
		if err != nil {
			return m, err
		}
		m.fixtures = append(m.fixtures, f)
	}
	m.context = m.fixtures[0].Context()
	return m, nil
}

// measure measures the rows with a number of threads. Ways that fail are left out.
func (m *meter) measure(ctx context.Context, rows []*bench.Row, threads, rounds int) []measured {
	begin := time.Now()
	var ways []*bench.Way
	for _, row := range rows {
		of := m.ways
		if threads > 1 {
			of = func(row *bench.Row) ([]*bench.Way, error) { return m.scaleWays(row, threads) }
		}
		more, err := of(row)
		if err != nil {
			m.fail(fmt.Errorf("row %s: %w", row.ID, err))
			continue
		}
		for _, w := range more {
			m.guard(w, threads)
		}
		ways = append(ways, more...)
	}
	sample := func(rounds int) error { return bench.Sample(ctx, m.fixtures[:threads], ways, rounds) }
	var err error
	if threads == 1 {
		err = m.pinned(rounds, sample)
	} else {
		err = sample(rounds)
	}
	if err != nil {
		m.fail(fmt.Errorf("with %d threads: %w", threads, err))
	}
	all := inResults(ways, threads)
	fmt.Fprintf(m.progress, "threads: %d; %d rows, %d rounds, %.1f s\n", threads, len(rows), rounds, time.Since(begin).Seconds())
	return all
}

// guard lets the other ways go on where one fails: it takes no further part, as if the
// driver could not do it.
func (m *meter) guard(w *bench.Way, threads int) {
	do := w.Do
	w.Do = func(n int) (time.Duration, error) {
		took, err := do(n)
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			return took, err
		}
		m.fail(fmt.Errorf("row %s by %s with %d threads: %w", w.Row.ID, w.Name, threads, err))
		return 0, errors.ErrUnsupported
	}
}

func (m *meter) fail(err error) {
	m.failed = append(m.failed, err)
	fmt.Fprintln(m.progress, "failed:", err)
}

func (m *meter) close() error {
	var errs []error
	for _, f := range m.fixtures {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
