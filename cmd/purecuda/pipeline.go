package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
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
)

// pipeline is the work of the demo. On stream "copy in" each batch goes from
// pinned host memory to one of two device buffers, with a stamp beside it; on
// stream "work" it is copied on, its first buffer and stamp are poisoned, and
// the result goes back to the host. With a second device the result makes a
// round trip there first, on stream "peer".
//
//	copy in   wait free[k] │ host → a[k], stamp[k] │ record full[k]
//	work      wait full[k] │ a[k] → b, stamp[k] → host, poison a[k] and stamp[k] │ record free[k]
//	peer                     wait for all of work │ b → c │ c → d │ d → back │ record returned
//	work      wait returned │ back → b
//	work      b → host
//
// The host enqueues all of it at once and waits once, at the end. Nothing but
// the events and stream waits keeps the streams from running into each other.
type pipeline struct {
	batches int
	size    int

	in, work *cuda.Stream
	peer     *cuda.Stream // nil with one device

	source, result []*cuda.HostBuffer[byte]   // a batch each
	stamps         []*cuda.HostBuffer[uint32] // what comes back of them

	a             [slots]*cuda.Buffer[byte]
	stamp         [slots]*cuda.Buffer[uint32]
	b, c, d, back *cuda.Buffer[byte] // c and d on the second device

	full, free [slots]*cuda.Event
	returned   *cuda.Event

	whole                     *stage // from the first batch's start to the last one's end
	load, on, fill, out, held *stage
	peerTo, peerOn, peerBack  *stage
	streams                   []*cuda.Stream
	closers                   []func() error // in the order of making
}

// newPipeline makes all that the pipeline needs and fills the sources. After an
// error too the pipeline must be closed.
func newPipeline(devices []*cuda.Device, batches, size int) (*pipeline, error) {
	p := &pipeline{batches: batches, size: size}
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
	if err := p.deviceMemory(); err != nil {
		return p, advise(err, "try a smaller -size")
	}
	if err := p.hostMemory(first); err != nil {
		return p, advise(err, fmt.Sprintf("the batches take %v of pinned memory in all: try a smaller -size or fewer -batches", pinned(batches, size)))
	}
	return p, nil
}

// advise adds to an error for want of memory what to do.
func advise(err error, what string) error {
	if errors.Is(err, driver.ErrorOutOfMemory) {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}

// pinned returns how much host memory the batches and their results take.
func pinned(batches, bytes int) size { return size(2 * uint64(batches) * uint64(bytes)) }

func (p *pipeline) stream(d *cuda.Device) (*cuda.Stream, error) {
	s, err := d.NewStream(nil)
	if err == nil {
		p.streams = append(p.streams, s)
		p.closers = append(p.closers, s.Close)
	}
	return s, err
}

func (p *pipeline) events() {
	for k := range slots {
		p.full[k], p.free[k] = cuda.NewEvent(nil), cuda.NewEvent(nil)
		p.closers = append(p.closers, p.full[k].Close, p.free[k].Close)
	}
	p.returned = cuda.NewEvent(nil)
	p.closers = append(p.closers, p.returned.Close)
}

func (p *pipeline) stages() {
	stage := func(stream string, s *cuda.Stream, name string) *stage {
		st := &stage{stream: stream, device: s.Device().Index(), name: name}
		p.closers = append(p.closers, st.close)
		return st
	}
	p.load = stage("copy in", p.in, "host to device")
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

// deviceMemory allocates the device buffers, and poisons them.
func (p *pipeline) deviceMemory() (err error) {
	for k := range slots {
		if p.a[k], err = poisoned(p, p.in, p.size, byte(poison)); err != nil {
			return err
		}
		if p.stamp[k], err = poisoned(p, p.in, stampWords, uint32(poison)); err != nil {
			return err
		}
	}
	if p.b, err = poisoned(p, p.work, p.size, byte(poison)); err != nil || p.peer == nil {
		return err
	}
	if p.c, err = poisoned(p, p.peer, p.size, byte(poison)); err != nil {
		return err
	}
	if p.d, err = poisoned(p, p.peer, p.size, byte(poison)); err != nil {
		return err
	}
	p.back, err = poisoned(p, p.work, p.size, byte(poison))
	return err
}

// poisoned allocates a buffer on the device of s and enqueues its poisoning.
func poisoned[T cuda.Element](p *pipeline, s *cuda.Stream, n int, v T) (*cuda.Buffer[T], error) {
	b, err := cuda.Alloc[T](s.Device(), n)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, b.Close)
	return b, cuda.Fill(s, b, v)
}

// hostMemory allocates the batches' memory, writes the sources, and poisons the
// results.
func (p *pipeline) hostMemory(d *cuda.Device) error {
	for i := range p.batches {
		source, err := pin[byte](p, d, p.size)
		if err != nil {
			return err
		}
		result, err := pin[byte](p, d, p.size)
		if err != nil {
			return err
		}
		stamp, err := pin[uint32](p, d, stampWords)
		if err != nil {
			return err
		}
		write(source.Slice(), i)
		set(result.Slice(), poison)
		set(stamp.Slice(), poison)
		p.source, p.result, p.stamps = append(p.source, source), append(p.result, result), append(p.stamps, stamp)
	}
	return nil
}

func pin[T cuda.Element](p *pipeline, d *cuda.Device, n int) (*cuda.HostBuffer[T], error) {
	b, err := cuda.AllocHost[T](d, n)
	if err == nil {
		p.closers = append(p.closers, b.Close)
	}
	return b, err
}

func set[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// all returns the stages in the order in which they are shown.
func (p *pipeline) all() []*stage {
	all := []*stage{p.load, p.on, p.fill, p.held}
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

// close closes everything, the last made first. All work must be done: the
// device must not write to memory that has been freed.
func (p *pipeline) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}
