// Command event-ipc lets the streams of two processes wait for each other's work,
// without a copy and without the host.
//
// One process, the producer, fills device memory again and again, records an event
// behind that, and hands both to the other as tokens, lines of text. The other, the
// consumer, opens them, makes its current stream wait for the event, and checks every
// element. The program starts itself as the consumer:
//
//	go run ./examples/event-ipc
//
// Without a GPU the two are simulated processes on a simulated GPU, and it says so.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/ipc"
)

func main() {
	log.SetFlags(0)
	role := flag.String("role", "producer", "`consumer` is what the program starts itself as")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *role, os.Stdin, os.Stdout); err != nil {
		log.Fatalf("event-ipc: %s: %v", *role, err)
	}
}

func run(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	drv, err := cuda.Open(nil)
	switch {
	case role == "consumer" && err != nil:
		return err
	case role == "consumer":
		return consume(ctx, drv, in, out)
	case err != nil || drv.DeviceCount() == 0:
		return simulate(ctx, out)
	}
	return produce(drv, func() (*peer, error) { return start(ctx) }, 64<<20, out)
}

// passes is how often the memory is filled, with 1, 2, 3 and so on. Whoever looks
// before the last pass is done sees less.
const passes = 1000

// produce makes n elements, and has a consumer use them.
func produce(drv *cuda.Driver, start func() (*peer, error), n int, out io.Writer) (err error) {
	dev, err := drv.OpenDevice(0)
	if err != nil {
		return err
	}
	s := dev.DefaultStream()
	x, err := cuda.Alloc[uint32](dev, n) // memory of AllocAsync cannot be shared
	if err != nil {
		return err
	}
	defer x.Close()
	ready := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	defer ready.Close()
	consumer, err := start()
	if err != nil {
		return err
	}
	// What CUDA does about an event or memory that its owner has closed while another
	// process uses it is undefined, so both stay open until the consumer has ended. What
	// is deferred last is done first.
	defer func() { err = errors.Join(err, consumer.end()) }()

	memory, err := ipc.ExportBuffer(x)
	if err != nil {
		return err
	}
	if err := consumer.tell(memory); err != nil {
		return err
	}
	line, err := consumer.says.ReadString('\n') // it is ready to begin
	if err != nil {
		return fmt.Errorf("the consumer has ended early: %w", err)
	}
	fmt.Fprint(out, line)

	for i := range uint32(passes) {
		if err := cuda.Fill(s, x, i+1); err != nil {
			return err
		}
	}
	if err := ready.Record(s); err != nil {
		return err
	}
	event, err := ipc.ExportEvent(ready)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "producer: %d passes over %d elements are enqueued, the event is recorded behind them\n", passes, n)
	if err := consumer.tell(event); err != nil {
		return err
	}
	_, err = io.Copy(out, consumer.says) // until its end
	return err
}

// consume is the other process: it reads two tokens, and writes what it has seen.
func consume(ctx context.Context, drv *cuda.Driver, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	memory, err := hear(lines)
	if err != nil {
		return err
	}
	x, err := ipc.ImportBuffer[uint32](drv, memory, nil)
	if err != nil {
		return err
	}
	defer x.Close()
	dev := x.Device() // the same as the producer's, whichever number it has here
	s, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(out, "consumer: %d elements of process %d are open\n", x.Len(), memory.Process.PID)

	event, err := hear(lines)
	if err != nil {
		return err
	}
	ready, err := ipc.ImportEvent(drv, event, nil)
	if err != nil {
		return err
	}
	defer ready.Close()
	done, err := ready.Query()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "consumer: the event is done already:", done)

	got := make([]uint32, x.Len())
	if err := use(cuda.WithStream(ctx, s), ready, x, got); err != nil {
		return err
	}
	for i, v := range got {
		if v != passes {
			return fmt.Errorf("element %d is %d and not %d: it was read too early", i, v, passes)
		}
	}
	fmt.Fprintf(out, "consumer: all %d elements are %d, as after the last pass\n", len(got), passes)
	return nil
}

// use copies the memory on the current stream of its device, when it is ready.
func use(ctx context.Context, ready *cuda.Event, x *cuda.Buffer[uint32], got []uint32) error {
	s := x.Device().CurrentStream(ctx)
	// The device waits, and not this process. If the producer died now, s would wait
	// for ever. A program that must survive that takes ready.WaitAlive(ctx, s) instead.
	if err := ready.Wait(s); err != nil {
		return err
	}
	return cuda.CopyToSlice(ctx, s, got, x)
}

// hear reads a token, a line of text.
func hear(lines *bufio.Reader) (t ipc.Token, err error) {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return t, fmt.Errorf("no token came from the producer: %w", err)
	}
	return t, t.UnmarshalText(line)
}
