// Bench measures what driver calls cost by this module and by other ways, on a
// machine with a GPU, in one run:
//
//	bench -o DIR [-peers DIR]     measure; performance.json, .md and .svg go to DIR
//	bench -o DIR -render FILE     make the other two of a performance.json
//	bench DIR                     bring DIR/performance.md up to DIR/performance.json
//
// In its own process it measures a C loop, which it compiles there, purego's
// SyscallN and RegisterFunc, the module's table of driver functions, and its public
// methods. The other libraries that -peers names are measured in processes of their
// own. See docs/hardware.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// roleVariable is the environment variable that makes a process a child of the
// command, which measures what only a fresh process can show.
const roleVariable = "PURECUDA_BENCH_ROLE"

// defaultRounds is how many there are if the command line says nothing else.
const defaultRounds = 300

// options are what the command line says.
type options struct {
	out, peers, library string
	rounds, scaleRounds int
	quick               bool
}

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run is the command without the process around it.
func run(args []string, stderr io.Writer) int {
	var o options
	var file string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.out, "o", "", "write the results to `DIR`")
	fs.StringVar(&o.peers, "peers", "", "measure the other libraries by the programs in `DIR` too")
	fs.StringVar(&o.library, "library", "", "the driver library's `path`, instead of the system's")
	fs.IntVar(&o.rounds, "rounds", defaultRounds, "how many times each thing is measured")
	fs.BoolVar(&o.quick, "quick", false, "measure a few times only, to see that all works")
	fs.StringVar(&file, "render", "", "measure nothing, take the results from `FILE`")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	var err error
	switch {
	case fs.NFlag() == 0 && fs.NArg() == 1:
		err = renderDocs(fs.Arg(0))
	case o.out == "" || fs.NArg() > 0 || o.rounds < 1:
		fmt.Fprintln(stderr, "bench: wants -o DIR and a positive number of rounds, or DIR alone")
		fs.Usage()
		return 2
	default:
		err = work(o, file, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// work measures, or reads what was measured, and writes the files. If only part of
// the measurement failed the rest is written.
func work(o options, file string, stderr io.Writer) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	if file != "" {
		r, err := readResults(file)
		if err != nil {
			return err
		}
		return render(r, o.out)
	}
	if o.quick {
		o.rounds = min(o.rounds, 20)
	}
	o.scaleRounds = max(o.rounds/10, 1)
	r, failed := measure(o, stderr)
	if r == nil {
		return failed
	}
	if err := writeResults(r, filepath.Join(o.out, "performance.json")); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, render(r, o.out))
}
