package main

import (
	"context"
	"fmt"

	"github.com/purecuda/cuda"
)

// run enqueues all batches and waits for the end of the last.
func (p *pipeline) run(ctx context.Context) error {
	all := newSpan()
	p.whole.spans = append(p.whole.spans, all)
	p.whole.bytes = uint64(p.batches) * uint64(p.size)
	if err := all.start.Record(p.work); err != nil {
		return err
	}
	if err := p.in.WaitEvent(all.start); err != nil {
		return err
	}
	for i := range p.batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.enqueue(i); err != nil {
			return fmt.Errorf("batch %d: %w", i, err)
		}
	}
	if err := p.work.WaitStream(p.in); err != nil {
		return err
	}
	if err := all.end.Record(p.work); err != nil {
		return err
	}
	return p.work.SynchronizeContext(ctx)
}

// enqueue gives the streams batch i. It does not wait for any of them.
func (p *pipeline) enqueue(i int) error {
	k := i % slots
	if err := p.copyIn(i, k); err != nil {
		return err
	}
	if i == delayed {
		if err := p.hold(i); err != nil {
			return err
		}
	}
	if err := p.workOn(i, k); err != nil {
		return err
	}
	if p.peer != nil {
		if err := p.roundTrip(); err != nil {
			return err
		}
	}
	return p.out.do(p.work, uint64(p.size), func() error { return cuda.Copy(p.work, p.result[i], p.b) })
}

// copyIn brings batch i and its stamp to slot k. The event free has not been
// recorded the first time, and waiting for it then does nothing.
func (p *pipeline) copyIn(i, k int) error {
	if err := p.in.WaitEvent(p.free[k]); err != nil {
		return err
	}
	if err := p.load.do(p.in, uint64(p.size), func() error { return cuda.Copy(p.in, p.a[k], p.source[i]) }); err != nil {
		return err
	}
	if err := cuda.Fill(p.in, p.stamp[k], stampOf(i)); err != nil {
		return err
	}
	return p.full[k].Record(p.in)
}

// hold makes the work stream late, so that the copies in would run ahead over
// batches that have not been read, if the event free did not hold them back. It
// copies what lies in b to where the batch's result will be.
func (p *pipeline) hold(i int) error {
	return p.held.do(p.work, delay*uint64(p.size), func() error {
		for range delay {
			if err := cuda.Copy(p.work, p.result[i], p.b); err != nil {
				return err
			}
		}
		return nil
	})
}

// workOn takes batch i out of slot k, and leaves poison there: what comes after
// must have been brought anew.
func (p *pipeline) workOn(i, k int) error {
	if err := p.work.WaitEvent(p.full[k]); err != nil {
		return err
	}
	if err := p.on.do(p.work, uint64(p.size), func() error { return cuda.Copy(p.work, p.b, p.a[k]) }); err != nil {
		return err
	}
	if err := cuda.Copy(p.work, p.stamps[i], p.stamp[k]); err != nil {
		return err
	}
	if err := p.fill.do(p.work, uint64(p.size), func() error { return cuda.Fill(p.work, p.a[k], poison) }); err != nil {
		return err
	}
	if err := cuda.Fill(p.work, p.stamp[k], poison); err != nil {
		return err
	}
	return p.free[k].Record(p.work)
}

// roundTrip sends b over the second device to back, and from there to b. The
// second device's stream works for this batch only after all that the work
// stream was given so far, the copy of the previous batch out of back among it.
func (p *pipeline) roundTrip() error {
	if err := p.peer.WaitStream(p.work); err != nil {
		return err
	}
	bytes := uint64(p.size)
	if err := p.peerTo.do(p.peer, bytes, func() error { return cuda.Copy(p.peer, p.c, p.b) }); err != nil {
		return err
	}
	if err := p.peerOn.do(p.peer, bytes, func() error { return cuda.Copy(p.peer, p.d, p.c) }); err != nil {
		return err
	}
	if err := p.peerBack.do(p.peer, bytes, func() error { return cuda.Copy(p.peer, p.back, p.d) }); err != nil {
		return err
	}
	if err := p.returned.Record(p.peer); err != nil {
		return err
	}
	if err := p.work.WaitEvent(p.returned); err != nil {
		return err
	}
	return p.on.do(p.work, bytes, func() error { return cuda.Copy(p.work, p.b, p.back) })
}

// stampOf is the stamp of a batch: not poison, and not another's.
func stampOf(batch int) uint32 { return uint32(batch+1) << 8 }

// check compares every byte of the results.
func (p *pipeline) check() error {
	for i := range p.batches {
		if w := compare(p.result[i].Slice(), i); w != nil {
			return w
		}
		for _, got := range p.stamps[i].Slice() {
			if got != stampOf(i) {
				return fmt.Errorf("batch %d: its stamp came back as %#x instead of %#x: "+
					"it was read before it had been written, or overwritten before it had been read", i, got, stampOf(i))
			}
		}
	}
	return nil
}
