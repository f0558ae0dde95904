package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/bench"
)

const benchDoes = "Measures what the calls of this library cost on the first device, and what the\n" +
	"driver functions cost that they call, called bare. Then some of the calls in\n" +
	"several goroutines at once. Takes about three seconds."

func benchmark(ctx context.Context, args []string, stdout, stderr io.Writer, from sources) int {
	fs := newFlags(stderr, "bench", benchDoes)
	which := chooseAuto
	fs.Var(&which, "driver", choiceHelp)
	library := fs.String("library", "", "absolute `path` of the driver library; implies -driver cuda")
	rounds := fs.Int("rounds", 200, "how often each call's time is taken; in goroutines, a tenth of that")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if *rounds < 1 || *rounds > maxRounds {
		return misuse(fs, fmt.Sprintf("-rounds must be 1 to %d", maxRounds))
	}
	if *library != "" {
		if which == chooseSim {
			return misuse(fs, "-library is of no use with -driver sim")
		}
		which = chooseCUDA
	}
	drv, err := from.open(which, *library)
	var d *cuda.Device
	if err == nil {
		d, err = drv.OpenDevice(0)
	}
	if err != nil {
		fmt.Fprintf(stderr, "purecuda bench: %v\nWithout a GPU try: purecuda bench -driver sim\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "driver: %v\n", drv)
	b := &benchRun{chosen: drv, rounds: *rounds}
	if err := b.run(ctx, d, stdout); err != nil {
		fmt.Fprintf(stderr, "purecuda bench%s: failed: %v\n", drv.mark(), err)
		return exitFailed
	}
	return exitOK
}

const maxRounds = 100_000

// parallelIDs are the rows that are also done by several goroutines.
var parallelIDs = []string{"record", "launch"}

// goroutines are how many do so.
var goroutines = []int{1, 2, 4, 8, 16}

// benchRun is a run of the command.
type benchRun struct {
	*chosen
	rounds int
	// fixtures are one for each goroutine; a single one uses the first.
	fixtures []*bench.Fixture
}

// run measures and writes the tables. At the end everything is closed.
func (b *benchRun) run(ctx context.Context, d *cuda.Device, out io.Writer) error {
	err := b.make(d)
	if err == nil {
		err = b.measure(ctx, d, out)
	}
	if err != nil && errors.Is(err, ctx.Err()) {
		err = errors.New("interrupted")
	}
	// As in the demo: a device that hangs must not keep the process.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for _, f := range b.fixtures {
		if derr := f.Drain(last); errors.Is(derr, context.DeadlineExceeded) {
			return errors.Join(err, fmt.Errorf("the device did not finish its work in another %v, so nothing was closed", grace))
		}
	}
	var closing []error
	for _, f := range b.fixtures {
		closing = append(closing, f.Close())
	}
	if cerr := errors.Join(closing...); err == nil && cerr != nil {
		err = fmt.Errorf("closing: %w", cerr)
	}
	return err
}

func (b *benchRun) make(d *cuda.Device) error {
	for range goroutines[len(goroutines)-1] {
		f, err := bench.NewFixture(d)
		if err != nil {
			return err
		}
		b.fixtures = append(b.fixtures, f)
	}
	return nil
}

func (b *benchRun) measure(ctx context.Context, d *cuda.Device, out io.Writer) error {
	name, err := d.Name()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "device: %s%s\n\n", name, b.mark())
	lines, err := b.calls(ctx)
	if err != nil {
		return err
	}
	b.printCalls(out, lines)
	parallel, err := b.parallel(ctx)
	if err != nil {
		return err
	}
	b.printParallel(out, parallel)
	if b.simulated {
		fmt.Fprintln(out, "\nThe times are of a simulation, in which the host does the work; they say nothing about any GPU.")
	}
	return nil
}

// benchLine is a row by the methods, and by the bare functions if it has them.
type benchLine struct{ method, table *bench.Way }

func (b *benchRun) calls(ctx context.Context) (lines []benchLine, err error) {
	f := b.fixtures[0]
	var ways []*bench.Way
	for _, r := range bench.Rows() {
		l := benchLine{r.ByMethod(f), r.ByTable(f)}
		ways = append(ways, l.method)
		if l.table != nil {
			ways = append(ways, l.table)
		}
		lines = append(lines, l)
	}
	return lines, bench.Sample(ctx, b.fixtures[:1], ways, b.rounds)
}

// parallel returns a way for each row and number of goroutines.
func (b *benchRun) parallel(ctx context.Context) (ways []*bench.Way, err error) {
	for _, id := range parallelIDs {
		for _, n := range goroutines {
			ways = append(ways, bench.RowByID(id).ByGoroutines(b.fixtures[:n]))
		}
	}
	return ways, bench.Sample(ctx, b.fixtures, ways, max(b.rounds/10, 1))
}
