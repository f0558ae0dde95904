package main

import (
	"context"
	"errors"

	"github.com/purecuda/cuda"
)

const (
	// slots is how many device buffers the batches take turns in, so that one is
	// filled while the other is worked on.
	slots = 2
	// stampWords is the length of a batch's stamp, its number written by a fill.
	stampWords = 64
	// delayed is the batch before which the work stream gets delay copies of a
	// batch's size to do, while the copies in could go on: see held.
	delayed = 1
	delay   = 4
	// Each block of the kernel has so many threads, and makes so many rows and
	// columns of the product.
	matmulThreads = 256
	matmulTile    = 64
)

// pipeline is the work of the demo. On stream "copy in" each batch goes from
// pinned host memory to one of two device buffers, with a stamp and a matrix
// beside it. On stream "work" the matrix is multiplied by the weights as soon as
// it is there, while the bytes may still be on their way; they are copied on,
// what the batch came in is poisoned, and the results go back to the host. With a
// second device the bytes make a round trip there first, on stream "peer".
//
//	copy in   wait free[k] │ stamp[k], host → matrix[k] │ record brought[k] │ host → a[k] │ record full[k]
//	work      wait brought[k] │ matrix[k] · weights → product, poison matrix[k], product → host
//	work      wait full[k] │ a[k] → b, stamp[k] → host, poison a[k] and stamp[k] │ record free[k]
//	peer                     wait for all of work │ b → c │ c → d │ d → back │ record returned
//	work      wait returned │ back → b
//	work      b → host
//
// The host enqueues all of it at once and waits once, at the end. Nothing but
// the events and stream waits keeps the streams from running into each other.
type pipeline struct {
	plan

	in, work *cuda.Stream
	peer     *cuda.Stream // nil with one device

	source, result     []*cuda.HostBuffer[byte]    // a batch each
	stamps             []*cuda.HostBuffer[uint32]  // what comes back of them
	matrices, products []*cuda.HostBuffer[float32] // n×n, and those with the weights
	refs               []*reference                // what they should be

	a             [slots]*cuda.Buffer[byte]
	stamp         [slots]*cuda.Buffer[uint32]
	b, c, d, back *cuda.Buffer[byte] // c and d on the second device

	module  *cuda.Module
	matmul  *cuda.Kernel
	weights *cuda.Buffer[float32]
	// matrix and product come from their streams' memory pools, anew for each
	// batch unless all is captured.
	matrix  [slots]*cuda.Buffer[float32]
	product *cuda.Buffer[float32]

	brought, full, free [slots]*cuda.Event
	returned            *cuda.Event

	whole                          *stage // from the first batch's start to the last one's end
	load, times, on, fill, out     *stage
	held, peerTo, peerOn, peerBack *stage
	streams                        []*cuda.Stream
	nodes                          int            // of the graph
	worst                          float64        // how far the worst element of a product is off, in tolerances
	closers                        []func() error // in the order of making
}

// newPipeline makes all that the pipeline needs and fills the sources. After an
// error too the pipeline must be closed.
func newPipeline(devices []*cuda.Device, what plan) (*pipeline, error) {
	p := &pipeline{plan: what}
	first := devices[0]
	var err error
	if p.in, err = p.stream(first); err != nil {
		return p, err
	}
	if p.work, err = p.stream(first); err != nil {
		return p, err
	}
	if len(devices) > 1 {
		if p.peer, err = p.stream(devices[1]); err != nil {
			return p, err
		}
	}
	p.events()
	p.stages()
	if err := p.kernel(first); err != nil {
		return p, err
	}
	if err := p.deviceMemory(); err != nil {
		return p, advise(err, "try a smaller -size")
	}
	if err := p.hostMemory(first); err != nil {
		return p, advise(err, "the batches take "+p.pinned().String()+" of pinned memory in all: try a smaller -size or fewer -batches")
	}
	p.refs = references(p.batches, p.n)
	return p, nil
}

func (p *pipeline) stream(d *cuda.Device) (*cuda.Stream, error) {
	s, err := d.NewStream(nil)
	if err == nil {
		p.streams = append(p.streams, s)
		p.closers = append(p.closers, s.Close)
	}
	return s, err
}

func (p *pipeline) events() {
	event := func() *cuda.Event {
		e := cuda.NewEvent(nil)
		p.closers = append(p.closers, e.Close)
		return e
	}
	for k := range slots {
		p.brought[k], p.full[k], p.free[k] = event(), event(), event()
	}
	p.returned = event()
}

func (p *pipeline) stages() {
	stage := func(stream string, s *cuda.Stream, name string) *stage {
		st := &stage{stream: stream, device: s.Device().Index(), name: name, external: p.graph}
		p.closers = append(p.closers, st.close)
		return st
	}
	p.load = stage("copy in", p.in, "host to device")
	p.times = stage("work", p.work, "product")
	p.times.unit = ofFLOP
	p.held = stage("work", p.work, "delay on purpose")
	p.on = stage("work", p.work, "device to device")
	p.fill = stage("work", p.work, "fill")
	p.out = stage("work", p.work, "device to host")
	if p.peer != nil {
		p.peerTo = stage("peer", p.peer, "from device 0")
		p.peerOn = stage("peer", p.peer, "device to device")
		p.peerBack = stage("peer", p.peer, "to device 0")
	}
	p.whole = stage("all", p.work, "from start to end")
}

// all returns the stages in the order in which they are shown.
func (p *pipeline) all() []*stage {
	all := []*stage{p.load, p.times, p.on, p.fill, p.held}
	if p.peer != nil {
		all = append(all, p.peerTo, p.peerOn, p.peerBack)
	}
	return append(all, p.out, p.whole)
}

// settle waits until all that was enqueued is done or ctx is.
func (p *pipeline) settle(ctx context.Context) error {
	for _, s := range p.streams {
		if err := s.SynchronizeContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close closes everything, the last made first. All work should be done: to close
// plain memory is to wait for what uses it, however long that takes.
func (p *pipeline) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}
