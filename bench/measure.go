//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/bench"
	"github.com/purecuda/cuda/internal/kernels"
)

// budget is how long all may take, somewhat less than what scripts/bundle-run allows.
const budget = 400 * time.Second

// measure measures all. If something of ours failed there is an error beside the rest
// of the results; that a peer did is said in them.
func measure(o options, progress io.Writer) (r *results, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	dir, err := os.MkdirTemp("", "purecuda-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	loop, compiler, err := compile(dir)
	if err != nil {
		return nil, err
	}
	drv, err := cuda.Open(&cuda.Options{Library: o.library})
	if err != nil {
		return nil, err
	}
	r = &results{Date: time.Now().UTC().Format("2006-01-02 15:04"), Commit: commit(), Command: o.command(), Go: runtime.Version()}
	if r.Machine, err = describe(drv, compiler); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%s, driver %s\n", r.Machine.Device, r.Machine.Driver)

	// Before this process has a context, beside which others' would be made sooner or later.
	r.Start, err = measureStart(ctx, drv.Library(), o)
	if err != nil {
		err = fmt.Errorf("start: %w", err)
	}
	m, opened := newMeter(drv, loop, progress)
	if opened != nil {
		return nil, errors.Join(err, opened)
	}
	rows := bench.Rows()
	batches, scaleBatches := make(map[string]int), make(map[string]int)
	for _, row := range rows {
		batches[row.ID], scaleBatches[row.ID] = row.Batch, row.ParallelBatch()
	}
	for _, n := range threads {
		rounds := o.rounds
		if n > 1 {
			rounds = o.scaleRounds
		}
		r.Rows = append(r.Rows, m.measure(ctx, rows, n, rounds)...)
	}
	r.Machine.Pinned = m.bound
	err = errors.Join(err, errors.Join(m.failed...), m.close())
	if o.peers != "" {
		err = errors.Join(err, measurePeers(ctx, o.peers, request{
			Library: loop, Libcuda: drv.Library(), Rounds: o.rounds, Batches: batches, Threads: threads,
			ScaleRounds: o.scaleRounds, ScaleBatches: scaleBatches, ScaleBatchesC: scaleBatches, Kernel: kernels.PTX, KernelName: "purecuda_empty",
		}, r, progress))
	}
	return r, err
}

// command is the command without what has no influence on the results.
func (o options) command() string {
	switch {
	case o.quick:
		return "bench -quick"
	case built != "" && o.rounds == defaultRounds:
		return "bundle/run bench"
	}
	return fmt.Sprintf("bench -rounds %d", o.rounds)
}
