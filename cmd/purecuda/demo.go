package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/purecuda/cuda"
)

// grace is how long an interrupted demo waits for the device before it ends
// without closing anything.
const grace = 5 * time.Second

const demoDoes = "Runs a pipeline over two streams of the first device, and a third on the second\n" +
	"device if there is one, ordered by events and stream waits alone. A kernel\n" +
	"multiplies a matrix of each batch. Checks every byte of the result and every\n" +
	"product, and shows how long each stage took by the device's clock."

func demo(ctx context.Context, args []string, stdout, stderr io.Writer, from sources) int {
	fs := newFlags(stderr, "demo", demoDoes)
	which, p := chooseAuto, plan{}
	fs.Var(&which, "driver", choiceHelp)
	p.flags(fs)
	asJSON := fs.Bool("json", false, "write one JSON object instead of text")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if wrong := p.misuse(given); wrong != "" {
		return misuse(fs, wrong)
	}

	drv, err := from.open(which, "")
	if err == nil && drv.DeviceCount() == 0 {
		_, err = drv.OpenDevice(0) // says why there is none
	}
	if err != nil {
		fmt.Fprintf(stderr, "purecuda demo: %v\nWithout a GPU try: purecuda demo -driver sim\n", err)
		return exitFailed
	}
	if tooMuch := p.complete(given, drv.simulated); tooMuch != "" {
		return misuse(fs, tooMuch)
	}

	r := &report{chosen: drv, plan: p}
	out := io.Writer(stdout)
	if *asJSON {
		out = io.Discard
	}
	fmt.Fprintf(out, "driver: %v\n", drv)
	err = r.run(ctx)
	r.print(out)
	if err == nil {
		fmt.Fprintln(out, r.verdict())
	}
	if *asJSON {
		if werr := r.json(stdout, err); werr != nil && err == nil {
			err = werr
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "purecuda demo%s: failed: %v\n", drv.mark(), err)
		return exitFailed
	}
	return exitOK
}

// run makes the pipeline, runs it, and collects what there is to tell. At the
// end everything is closed.
func (r *report) run(ctx context.Context) (err error) {
	cleanups := collectCleanupErrors(r.Driver)
	devices, err := r.devices()
	if err != nil {
		return err
	}
	if len(devices) > 1 {
		if r.peer, err = connect(devices[0], devices[1]); err != nil {
			return err
		}
	}
	p, err := newPipeline(devices, r.plan)
	if err == nil {
		err = r.measure(ctx, p)
	}
	if err != nil && errors.Is(err, ctx.Err()) {
		err = errors.New("interrupted")
	}
	// To close plain memory is to wait for the work that uses it. So that work must
	// have ended, also when ctx has, but a device that hangs must not keep the process.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	serr := p.settle(last)
	if errors.Is(serr, context.DeadlineExceeded) {
		return errors.Join(err, fmt.Errorf("the device did not finish its work in another %v, so nothing was closed", grace))
	}
	if err == nil {
		err = serr
	}
	cerr := p.close()
	if err != nil {
		return err
	}
	left := leftovers(r.Driver)
	if cerr = errors.Join(cerr, cleanups()); cerr != nil {
		return fmt.Errorf("closing: %w", cerr)
	}
	if left != "" {
		return fmt.Errorf("after everything was closed there are still: %s", left)
	}
	return nil
}

// devices opens the first two devices, or the only one.
func (r *report) devices() (all []*cuda.Device, err error) {
	for i := range min(r.DeviceCount(), 2) {
		d, err := r.OpenDevice(i)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// peerAccess says whether two devices reach each other's memory directly.
type peerAccess struct {
	bothWays bool
	why      string // why not
}

// connect lets two devices use each other's memory, where they can.
func connect(a, b *cuda.Device) (*peerAccess, error) {
	for _, err := range []error{a.EnablePeerAccess(b), b.EnablePeerAccess(a)} {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return &peerAccess{why: err.Error()}, nil
		case err != nil:
			return nil, err
		}
	}
	return &peerAccess{bothWays: true}, nil
}

// measure runs the pipeline, checks its result and reads its clocks.
func (r *report) measure(ctx context.Context, p *pipeline) error {
	if err := p.settle(ctx); err != nil {
		return err
	}
	run := p.run
	if r.graph {
		run = p.replay
	}
	if err := run(ctx); err != nil {
		return err
	}
	r.streams, r.nodes, r.worst = len(p.streams), p.nodes, p.worst
	for _, st := range p.all() {
		if len(st.spans) == 0 {
			continue
		}
		took, err := st.took()
		if err != nil {
			return err
		}
		r.rows = append(r.rows, newRow(st, took))
	}
	return nil
}

// collectCleanupErrors returns a function that returns the failures that no
// call could return.
func collectCleanupErrors(drv *cuda.Driver) func() error {
	var mu sync.Mutex
	var errs []error
	drv.OnCleanupError(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		return errors.Join(errs...)
	}
}

// lateFrees is how long memory may take that is freed in the background.
const lateFrees = time.Second

// leftovers names what is still there when everything was closed, if it does not go
// by itself: memory that is closed may be freed a little later, and a stream is
// destroyed after the memory that it used.
func leftovers(drv *cuda.Driver) string {
	for end := time.Now().Add(lateFrees); ; time.Sleep(time.Millisecond) {
		if left := leftOpen(drv.Stats()); left == "" || !time.Now().Before(end) {
			return left
		}
	}
}

// leftOpen names what is counted in s.
func leftOpen(s cuda.Stats) string {
	var left []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{s.Streams, "stream"}, {s.ExternalStreams, "external stream"}, {s.Events, "event"},
		{s.Buffers, "buffer"}, {s.HostBuffers, "host buffer"}, {s.Modules, "module"}, {s.Graphs, "graph"},
		{s.Forgotten, "forgotten object"},
	} {
		if c.n != 0 {
			left = append(left, count(c.n, c.what))
		}
	}
	return strings.Join(left, ", ")
}
