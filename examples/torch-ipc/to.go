package main

import (
	"context"
	"fmt"
	"io"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/ipc"
)

// toPyTorch lets PyTorch work on memory of this process.
func toPyTorch(ctx context.Context, p *python, k kernels, out io.Writer) error {
	s, err := p.device.NewStream(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	whole, err := cuda.Alloc[float32](p.device, 64+elements) // memory of AllocAsync cannot be shared
	if err != nil {
		return err
	}
	defer whole.Close()
	x, err := whole.Range(64, 64+elements)
	if err != nil {
		return err
	}
	ready := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	defer ready.Close()

	numbers := make([]float32, elements)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	if err := cuda.CopyFromSlice(ctx, s, x, numbers); err != nil {
		return err
	}
	if err := k.work(s, x); err != nil {
		return err
	}
	if err := ready.Record(s); err != nil {
		return err
	}
	memory, err := ipc.ExportBuffer(x)
	if err != nil {
		return err
	}
	event, err := ipc.ExportEvent(ready)
	if err != nil {
		return err
	}
	var received struct {
		Pending bool
		Wrong   int
		Event   []byte
	}
	// The tokens go as JSON objects, of which the script takes what it needs.
	err = p.call(map[string]any{"do": "receive", "memory": memory, "event": event, "cycles": cycles}, &received)
	if err != nil {
		return err
	}
	if received.Wrong > 0 {
		return fmt.Errorf("PyTorch finds that %d of %d elements are wrong", received.Wrong, elements)
	}
	fmt.Fprintf(out, "to PyTorch: all %d elements arrived; it had to wait: %v\n", elements, received.Pending)

	done, err := p.openEvent(received.Event)
	if err != nil {
		return err
	}
	defer done.Close()
	finished, err := done.Query()
	if err != nil {
		return err
	}
	if err := done.WaitAlive(ctx, s); err != nil {
		return err
	}
	if err := cuda.CopyToSlice(ctx, s, numbers, x); err != nil {
		return err
	}
	for i, v := range numbers {
		if want := 3 * (2*float32(i) + 1); v != want {
			return fmt.Errorf("element %d is %v and not %v", i, v, want)
		}
	}
	fmt.Fprintf(out, "to PyTorch: changed there, and all %d elements are right here; PyTorch was done already: %v\n", elements, finished)

	// The memory and the event are closed here only after PyTorch has released them.
	return p.call(map[string]any{"do": "release"}, &struct{}{})
}
