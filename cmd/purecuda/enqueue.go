package main

import (
	"context"
	"fmt"

	"github.com/purecuda/cuda"
)

// run enqueues all batches, waits for the end of the last, and checks the
// results.
func (p *pipeline) run(ctx context.Context) error {
	if err := p.enqueueAll(ctx); err != nil {
		return err
	}
	if err := p.work.SynchronizeContext(ctx); err != nil {
		return err
	}
	return p.check()
}

// enqueueAll gives the streams all batches. The other streams begin after the
// work stream, and it ends after them, so a capture of it captures all.
func (p *pipeline) enqueueAll(ctx context.Context) error {
	all := p.whole.span(uint64(p.batches) * uint64(p.size))
	if err := all.start.Record(p.work); err != nil {
		return err
	}
	if err := p.in.WaitStream(p.work); err != nil {
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
	return all.end.Record(p.work)
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
	if err := p.multiply(i, k); err != nil {
		return err
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

// copyIn brings batch i, its stamp and its matrix to slot k, once what was there
// has been worked on.
func (p *pipeline) copyIn(i, k int) error {
	if i >= slots {
		if err := p.in.WaitEvent(p.free[k]); err != nil {
			return err
		}
		if !p.graph { // nothing can be allocated in a capture
			if err := p.renew(p.in, &p.matrix[k]); err != nil {
				return err
			}
		}
	}
	if err := cuda.Fill(p.in, p.stamp[k], stampOf(i)); err != nil {
		return err
	}
	if err := cuda.Copy(p.in, p.matrix[k], p.matrices[i]); err != nil {
		return err
	}
	if err := p.brought[k].Record(p.in); err != nil {
		return err
	}
	if err := p.load.do(p.in, uint64(p.size), func() error { return cuda.Copy(p.in, p.a[k], p.source[i]) }); err != nil {
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

// multiply multiplies the matrix of batch i in slot k by the weights, leaves
// poison there, and sends the product home.
func (p *pipeline) multiply(i, k int) error {
	if err := p.work.WaitEvent(p.brought[k]); err != nil {
		return err
	}
	if !p.graph {
		if err := p.renew(p.work, &p.product); err != nil {
			return err
		}
	}
	n := p.n
	tiles := (n + matmulTile - 1) / matmulTile
	shape := cuda.LaunchConfig{Grid: cuda.Dim3{X: tiles, Y: tiles}, Block: cuda.Dim3{X: matmulThreads}}
	if err := p.times.do(p.work, 2*uint64(n)*uint64(n)*uint64(n), func() error {
		return p.matmul.Launch(p.work, shape, p.product, p.matrix[k], p.weights, uint32(n), uint32(n), uint32(n))
	}); err != nil {
		return err
	}
	if err := cuda.Fill(p.work, p.matrix[k], notANumber); err != nil {
		return err
	}
	return cuda.Copy(p.work, p.products[i], p.product)
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

// check compares every byte of the results and every element of the products.
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
		worst, err := checkProduct(p.products[i].Slice(), i, p.refs)
		if err != nil {
			return err
		}
		p.worst = max(p.worst, worst)
	}
	return nil
}
