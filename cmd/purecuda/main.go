// Command purecuda shows what package cuda does, and what it finds on a
// machine:
//
//	purecuda demo    a pipeline over several streams, every byte and product checked
//	purecuda info    the driver and its devices
//	purecuda bench   what the calls cost
//
// Without an NVIDIA driver they use a simulated GPU, and say so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // something did not work
	exitUsage  = 2 // the command line is wrong
)

const usage = `usage: purecuda <command> [flags]

commands:
  demo    run a pipeline over several streams and check all of its results
  info    show the driver and its devices
  bench   measure what the calls cost
  help    show this text

"purecuda <command> -h" lists the command's flags.
Without an NVIDIA driver the commands use a simulated GPU, and say so.
`

func main() {
	args := os.Args[1:]
	os.Exit(run(interruptible(args), args, os.Stdout, os.Stderr, system()))
}

// interruptible returns a context that the first signal ends, for the commands
// that look at it. The next signal, and any to other commands, ends the process.
func interruptible(args []string) context.Context {
	if len(args) == 0 || args[0] != "demo" && args[0] != "bench" {
		return context.Background()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// run is the command without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, from sources) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch name := args[0]; name {
	case "demo":
		return demo(ctx, args[1:], stdout, stderr, from)
	case "info":
		return info(args[1:], stdout, stderr, from)
	case "bench":
		return benchmark(ctx, args[1:], stdout, stderr, from)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprintf(stderr, "purecuda: there is no command %q\n\n%s", name, usage)
		return exitUsage
	}
}

// newFlags returns the flag set of a command. The first line of its help says
// what the command does.
func newFlags(stderr io.Writer, name, does string) *flag.FlagSet {
	fs := flag.NewFlagSet("purecuda "+name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "usage: purecuda %s [flags]\n\n%s\n\nflags:\n", name, does)
		fs.PrintDefaults()
	}
	return fs
}

// parse parses the flags of a command that takes nothing else. If it is not ok
// the command ends with the exit code.
func parse(fs *flag.FlagSet, args []string) (code int, ok bool) {
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	case err != nil: // the flag set has said what is wrong
		return exitUsage, false
	case fs.NArg() > 0:
		return misuse(fs, fmt.Sprintf("unexpected argument %q", fs.Arg(0))), false
	}
	return exitOK, true
}

// misuse says what is wrong with the command line.
func misuse(fs *flag.FlagSet, what string) int {
	fmt.Fprintf(fs.Output(), "%s: %s\n%q lists the flags\n", fs.Name(), what, fs.Name()+" -h")
	return exitUsage
}
