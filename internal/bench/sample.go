package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// warmUp is how many rounds are made before those that count.
const warmUp = 3

// Sample measures the ways, whose times it appends to them: in each round one sample of
// every way, so that a machine that changes its speed does so for all. Ways of the same
// row stand beside each other in ways, are measured one after the other, and take
// turns in being the first. After each sample the fixtures are drained.
//
// What the driver or the device cannot do is marked as missing. Any other failure,
// and the end of ctx, ends it.
func Sample(ctx context.Context, fixtures []*Fixture, ways []*Way, rounds int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rows := byRow(ways)
	for round := range warmUp + rounds {
		for _, row := range rows {
			for i := range row {
				w := row[(i+round)%len(row)]
				if err := w.sample(round >= warmUp); err != nil {
					return fmt.Errorf("%s by %s: %w", w.Row.ID, w.Name, err)
				}
				for _, f := range fixtures {
					if err := f.Drain(ctx); err != nil {
						return err
					}
				}
				if err := ctx.Err(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// byRow cuts ways where the row changes.
func byRow(ways []*Way) (rows [][]*Way) {
	for i, w := range ways {
		if i == 0 || w.Row != ways[i-1].Row {
			rows = append(rows, nil)
		}
		last := &rows[len(rows)-1]
		*last = append(*last, w)
	}
	return rows
}

// sample makes one sample, which counts or only warms up.
func (w *Way) sample(counts bool) error {
	if w.Missing != nil {
		return nil
	}
	took, err := w.Do(w.N)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		w.Missing, err = err, nil
	case err == nil && counts:
		w.NS = append(w.NS, float64(took.Nanoseconds())/float64(w.N))
	}
	return err
}
