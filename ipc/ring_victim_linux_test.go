package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
)

// What dies in the tests with a real SIGKILL: a producer or a consumer, before its first
// batch, at work, or when it has done all that it will ever do.
const (
	before = "before the first batch"
	atWork = "at work"
	after  = "after the last batch"

	killSlots  = 8
	killLength = 16 << 10
	// finished is how many batches there are for a victim that dies after them.
	finished = 5
	// batchWork is how long the victim's device is busy with a batch.
	batchWork = 200 * time.Microsecond
	// longWork is how long the work takes in the middle of which the victim dies.
	longWork = 5 * time.Second
)

// victim plays the role until it is killed, or the other end leaves: "producer " or
// "consumer ", and when it is to die. It offers the event "pending", which is done only
// if it dies after its work, and then the event "ready". has receives its ring, which
// nobody closes.
func victim(ctx context.Context, role string, drv *cuda.Driver, dev *cuda.Device, s *Session, has func(ring io.Closer)) error {
	who, when, _ := strings.Cut(role, " ")
	stream, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	other, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	m, err := dev.LoadModule([]byte(kernels.PTX))
	if err != nil {
		return err
	}
	spin, err := m.Kernel("purecuda_spin")
	if err != nil {
		return err
	}
	work := func(s *cuda.Stream, d time.Duration) error { return spin.Launch(s, cuda.Grid1D(1, 1), uint64(d)) }
	if err := errors.Join(work(stream, 1), stream.Synchronize()); err != nil { // loads it
		return err
	}
	if when != after {
		if err := work(other, longWork); err != nil {
			return err
		}
	}
	pending := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: dev})
	if err := errors.Join(pending.Record(other), s.Offer("pending", pending)); err != nil {
		return err
	}
	ready := func() error {
		return s.Offer("ready", cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: dev}))
	}
	step, ring, err := victimsStep(ctx, who, when, drv, dev, s, stream, func() error { return work(stream, batchWork) })
	if err != nil {
		return err
	}
	has(ring)
	switch when {
	case after:
		for range finished {
			if err := step(); err != nil {
				return err
			}
		}
		if err := stream.Synchronize(); err != nil {
			return err
		}
		fallthrough
	case before:
		if err := ready(); err != nil {
			return err
		}
		<-s.Done()
		return nil
	}
	for n := 0; ; n++ {
		if n == 2*killSlots {
			if err := ready(); err != nil {
				return err
			}
		}
		if err := step(); err != nil {
			return err
		}
	}
}

// victimsStep makes the victim's end of the ring, and returns what sends or takes a
// batch.
func victimsStep(ctx context.Context, who, when string, drv *cuda.Driver, dev *cuda.Device, s *Session, stream *cuda.Stream, work func() error) (func() error, io.Closer, error) {
	if who == "consumer" {
		c, err := NewConsumer[uint32](ctx, s, drv, "ring")
		if err != nil {
			return nil, nil, err
		}
		x, err := newCopier(c, stream, wordsOf(killLength))
		if err != nil {
			return nil, nil, err
		}
		x.work = work
		return func() error {
			err := x.take(ctx)
			for err == nil && (len(x.pending) > killSlots/2 || len(x.pending) > 0 && when == after) {
				err = x.check(ctx)
			}
			return err
		}, c, nil
	}
	from, err := cuda.Alloc[uint32](dev, killLength+shifts)
	if err != nil {
		return nil, nil, err
	}
	if err := cuda.CopyFromSlice(ctx, stream, from, wordsOf(killLength)); err != nil {
		return nil, nil, err
	}
	p, err := NewProducer[uint32](ctx, s, dev, "ring", killSlots, killLength)
	return func() error { return sendNext(ctx, p, stream, from, work) }, p, err
}

// sendNext sends a batch.
func sendNext(ctx context.Context, p *Producer[uint32], s *cuda.Stream, from *cuda.Buffer[uint32], work func() error) error {
	slot, err := p.Next(ctx, s)
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	at := shift(slot.Number)
	part, err := from.Range(at, at+slot.Buffer.Len())
	if err != nil {
		return err
	}
	if err := cuda.Copy(s, slot.Buffer, part); err != nil {
		return err
	}
	if err := slot.Send(s); err != nil {
		return fmt.Errorf("batch %d: %w", slot.Number, err)
	}
	return nil
}
