// Command torch-ipc shares device memory with PyTorch in another process, in both
// directions and without a copy: each side waits for the other's event, works on the
// memory and records an event of its own.
//
//	go run ./examples/torch-ipc           both directions
//	go run ./examples/torch-ipc -kill     what happens if PyTorch's process dies
//
// It starts share.py, which is built into it, with $PYTHON or the flag -python, and
// needs a GPU and a python3 that has torch. docs/pytorch-ipc.md says more.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/purecuda/cuda"
)

func main() {
	log.SetFlags(0)
	name := flag.String("python", cmp.Or(os.Getenv("PYTHON"), "python3"), "the `command` that has torch")
	kill := flag.Bool("kill", false, "kill PyTorch's process while its work is pending")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *name, *kill, os.Stdout); err != nil {
		log.Fatalf("torch-ipc: %v", err)
	}
}

func run(ctx context.Context, name string, kill bool, out io.Writer) error {
	drv, err := cuda.Open(nil)
	if err == nil && drv.DeviceCount() == 0 {
		_, err = drv.OpenDevice(0) // says why there is none
	}
	if err != nil {
		return fmt.Errorf("this example needs a GPU: %w", err)
	}
	p, err := start(ctx, name)
	if err != nil {
		return err
	}
	return exchange(ctx, drv, p, kill, counters, out)
}

// exchange does what there is to show. PyTorch's counters are in dir.
func exchange(ctx context.Context, drv *cuda.Driver, p *python, kill bool, dir string, out io.Writer) (err error) {
	defer func() {
		if ended := p.end(); err == nil && !kill {
			err = ended
		}
	}()
	if err := p.greet(drv); err != nil {
		return err
	}
	fmt.Fprintf(out, "PyTorch %s in process %d\n", p.Torch, p.PID)
	if kill {
		return killed(ctx, p, dir, out)
	}
	k, err := load(p.device)
	if err != nil {
		return err
	}
	defer k.module.Close()
	if err := fromPyTorch(ctx, p, k, dir, out); err != nil {
		return fmt.Errorf("memory from PyTorch: %w", err)
	}
	if err := toPyTorch(ctx, p, k, out); err != nil {
		return fmt.Errorf("memory to PyTorch: %w", err)
	}
	return nil
}

// What is shared, and how long PyTorch's work takes that comes before it: more than
// half a second.
const (
	elements       = 1 << 20
	cycles   int64 = 1_000_000_000
)

//go:embed kernels.ptx
var ptx []byte

type kernels struct {
	module       *cuda.Module
	affine, spin *cuda.Kernel
}

func load(dev *cuda.Device) (k kernels, err error) {
	if k.module, err = dev.LoadModule(ptx); err != nil {
		return k, err
	}
	if k.affine, err = k.module.Kernel("affine"); err == nil {
		k.spin, err = k.module.Kernel("spin")
	}
	return k, err
}

// work enqueues long work, and then x[i] = 2*x[i] + 1.
func (k kernels) work(s *cuda.Stream, x *cuda.Buffer[float32]) error {
	const ns = 200_000_000
	if err := k.spin.Launch(s, cuda.Grid1D(1, 1), uint64(ns)); err != nil {
		return err
	}
	return k.affine.Launch(s, cuda.Grid1D(x.Len(), 256), x, float32(2), float32(1), uint64(x.Len()))
}
