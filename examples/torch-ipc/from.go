package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/ipc"
)

// fromPyTorch works on a tensor of PyTorch's.
func fromPyTorch(ctx context.Context, p *python, k kernels, dir string, out io.Writer) error {
	var t tensor
	if err := p.call(map[string]any{"do": "share", "elements": elements, "cycles": cycles}, &t); err != nil {
		return err
	}
	ready, err := p.openEvent(t.Event)
	if err != nil {
		return err
	}
	defer ready.Close()
	block, x, err := openTensor(p.device, &t)
	if err != nil {
		return err
	}
	defer block.Close()
	s, err := p.device.NewStream(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	filled, err := ready.Query()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "from PyTorch: a tensor of shape %v in a block of %d bytes; PyTorch has filled it already: %v\n", t.Shape, block.Len(), filled)

	// Wait would leave the waiting to the device. But then s would stand for ever if
	// PyTorch's process died before.
	if err := ready.WaitAlive(ctx, s); err != nil {
		return err
	}
	if err := k.work(s, x); err != nil {
		return err
	}
	done := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	defer done.Close()
	if err := done.Record(s); err != nil {
		return err
	}
	event, err := ipc.ExportEvent(done)
	if err != nil {
		return err
	}
	var checked struct {
		Pending bool
		Wrong   int
	}
	if err := p.call(map[string]any{"do": "check", "event": event}, &checked); err != nil {
		return err
	}
	if checked.Wrong > 0 {
		return fmt.Errorf("PyTorch finds that %d of %d elements are wrong", checked.Wrong, elements)
	}
	fmt.Fprintf(out, "from PyTorch: changed here, and PyTorch finds all %d elements right; it had to wait: %v\n", elements, checked.Pending)

	// First the driver releases the memory, then PyTorch is told.
	if err := block.Close(); err != nil {
		return err
	}
	if _, err := letGo(dir, t.Counter, t.CounterIndex); err != nil {
		return err
	}
	var forgotten struct{ Kept int }
	if err := p.call(map[string]any{"do": "forget"}, &forgotten); err != nil {
		return err
	}
	if forgotten.Kept != 0 {
		return fmt.Errorf("PyTorch keeps %d bytes, although it was told that they are not used here any more", forgotten.Kept)
	}
	fmt.Fprintln(out, "from PyTorch: released, and PyTorch has its memory back")
	return nil
}

// killed kills PyTorch's process while its work is pending.
func killed(ctx context.Context, p *python, dir string, out io.Writer) (err error) {
	var t tensor
	if err := p.call(map[string]any{"do": "share", "elements": elements, "cycles": 20 * cycles}, &t); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clearUp(dir, t.Counter)) }()
	ready, err := p.openEvent(t.Event)
	if err != nil {
		return err
	}
	defer ready.Close()
	s, err := p.device.NewStream(nil)
	if err != nil {
		return err
	}
	defer s.Close()

	at := make(chan time.Time, 1)
	defer time.AfterFunc(200*time.Millisecond, func() {
		at <- time.Now()
		_ = p.kill()
	}).Stop()
	err = ready.WaitAlive(ctx, s)
	if !errors.Is(err, cuda.ErrPeerGone) {
		return fmt.Errorf("PyTorch was killed, but the wait for its event ended with: %v", err)
	}
	fmt.Fprintf(out, "PyTorch was killed; %v later WaitAlive returned: %v\n", time.Since(<-at).Round(100*time.Microsecond), err)
	return nil
}
