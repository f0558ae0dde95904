package ipc

import (
	"context"
	"log/slog"
	"time"
	"unsafe"

	"github.com/purecuda/cuda"
)

// Producer is the end of a ring that fills batches:
//
//	slot, err := p.Next(ctx, s) // s waits, on the device, until the slot is free
//	...                         // enqueue on s what fills slot.Buffer
//	err = slot.Send(s)          // the consumer's stream goes on when s has come here
//
// Nothing is copied: both processes work on the same memory, which is the producer's.
// The host only enqueues, and is ahead of the device by as many batches as there are
// slots. If the consumer dies or closes the ring, what waits for it goes on at once,
// and Next says why.
//
// Several goroutines may share a Producer; the batches have the order of their Nexts.
type Producer[T cuda.Element] struct {
	ring   *ring
	buffer *cuda.Buffer[T]
	parts  []*cuda.Buffer[T]
}

// Slot is one buffer of a ring, to be filled.
type Slot[T cuda.Element] struct {
	// Buffer is the memory of the batch, for work that is enqueued between Next and
	// Send. It must not be closed.
	Buffer *cuda.Buffer[T]
	// Number counts the batches of the ring, from 0.
	Number uint64

	producer *Producer[T]
}

// NewProducer offers the peer of s a ring of slots buffers, of length elements each, in
// the memory of d, which it allocates. It waits until the peer has taken the ring by
// [NewConsumer] under the same name, which is 1 to 228 bytes of printable text. It must be
// closed.
func NewProducer[T cuda.Element](ctx context.Context, s *Session, d *cuda.Device, name string, slots, length int) (*Producer[T], error) {
	const op = "ring produce"
	if err := s.usable(op); err != nil {
		return nil, err
	}
	if d == nil {
		return nil, invalid(op, "the device is nil")
	}
	if err := checkRing(op, name, slots, length); err != nil {
		return nil, err
	}
	p := &Producer[T]{ring: newRing(s, name, slots)}
	p.ring.dev = d
	if err := p.setUp(ctx, op, d, length); err != nil {
		gaveUp := ringMessage{Closed: true, Name: name} // the consumer may have come meanwhile
		if ctx.Err() == nil {
			gaveUp.Error = err.Error()
		}
		p.ring.say(gaveUp)
		p.ring.abandon()
		go p.release()
		return nil, err
	}
	s.rings.opened(p.ring, p)
	p.ring.run(false)
	return p, nil
}

func (p *Producer[T]) setUp(ctx context.Context, op string, d *cuda.Device, length int) (err error) {
	r := p.ring
	if !r.session.rings.produce(r) {
		return r.inUse(op)
	}
	if p.buffer, err = cuda.Alloc[T](d, r.slots*length); err != nil {
		return err
	}
	if p.parts, err = parts(p.buffer, r.slots); err != nil {
		return err
	}
	if err := r.session.offerNamed(r.memoryName(), p.buffer); err != nil {
		return err
	}
	setup := ringMessage{Name: r.name, Setup: &ringSetup{Slots: r.slots, Length: length, Element: int(unsafe.Sizeof(*new(T)))}}
	if file, err := newSharedFile(countersSize(r.slots)); err == nil { // else events do
		defer file.Close()
		c, err := newCounters(d, file, r.slots, true)
		switch {
		case err == nil:
			r.gate, setup.Setup.Counters, setup.file = c, true, file
		case !isUnsupported(err):
			return err
		}
	}
	if err := r.say(setup); err != nil {
		return err
	}
	m, err := r.greet(ctx, op)
	switch {
	case err != nil:
		return err
	case m.Ready == nil:
		return r.broken(op, "an answer was to come")
	case m.Ready.Error != "":
		return &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: "the consumer refuses: " + m.Ready.Error}
	case m.Ready.Counters && r.gate != nil:
		return nil
	case r.gate != nil:
		r.gate.close()
	}
	events, err := newEvents(ctx, op, r, d)
	if err != nil {
		r.gate = nil
		return err
	}
	r.gate = events
	return nil
}

// parts returns the slots of a ring's memory.
func parts[T cuda.Element](b *cuda.Buffer[T], slots int) (all []*cuda.Buffer[T], err error) {
	length := b.Len() / slots
	for i := range slots {
		part, err := b.Range(i*length, (i+1)*length)
		if err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

// Device returns the device that the memory is on.
func (p *Producer[T]) Device() *cuda.Device {
	if !p.made() {
		return nil
	}
	return p.ring.dev
}

// Slots returns the number of buffers.
func (p *Producer[T]) Slots() int {
	if !p.made() {
		return 0
	}
	return p.ring.slots
}

// Next returns the slot of the next batch. What is enqueued on s from now on waits until
// the consumer is done with what was in it before. The host waits only if it is ahead of
// the device by all slots already, until ctx is done. If all slots are with the caller
// the error matches [cuda.ErrInvalid]. If the consumer is gone it matches
// [cuda.ErrPeerGone], and if it has closed the ring or its session, [ErrLeft].
func (p *Producer[T]) Next(ctx context.Context, s *cuda.Stream) (Slot[T], error) {
	const op = "ring produce"
	if err := p.usable(op); err != nil {
		return Slot[T]{}, err
	}
	r := p.ring
	if err := r.fits(op, s); err != nil {
		return Slot[T]{}, err
	}
	n, slot, err := r.take(ctx, op)
	if err != nil {
		return Slot[T]{}, err
	}
	defer r.giveTurn()
	if r.halt.Err() != nil {
		return Slot[T]{}, renamed(op, context.Cause(r.halt))
	}
	if round := n / uint64(r.slots); round > 0 {
		if err := r.await(ctx, s, slot, round); err != nil {
			return Slot[T]{}, renamed(op, err)
		}
	}
	if err := r.taken(op, slot); err != nil {
		return Slot[T]{}, err
	}
	return Slot[T]{Buffer: p.parts[slot], Number: n, producer: p}, nil
}

// Send hands the batch over: the consumer may use it when s has come to this point. s
// is the stream that fills it, or one that waits for that.
func (b Slot[T]) Send(s *cuda.Stream) error {
	const op = "ring send"
	if b.producer == nil {
		return noBatch(op)
	}
	return b.producer.ring.give(op, s, b.Number)
}

// Flush waits until the consumer is done with all that was sent so far, or ctx is done.
// If it died before that the error matches [cuda.ErrPeerGone]: then some batches were
// lost.
func (p *Producer[T]) Flush(ctx context.Context) error {
	const op = "ring flush"
	if err := p.usable(op); err != nil {
		return err
	}
	r := p.ring
	if r.isClosed() {
		return &cuda.Error{Op: op, Err: cuda.ErrClosed}
	}
	return renamed(op, r.until(ctx, func(ctx context.Context) error { return r.gate.flush(ctx, r.sent()) }))
}

// Close tells the consumer that no more comes. It does not wait: the memory is freed when
// the consumer has closed the ring too, or is gone. What was sent still arrives; to
// know that it has, call Flush before. A slot that was taken and not sent hides those
// after it: if one of these was sent it is lost, and the error says so. Closing again is
// nil; closing the session closes its rings.
func (p *Producer[T]) Close() error {
	if !p.made() {
		return nil
	}
	r := p.ring
	n, ok, err := r.close("ring close")
	if !ok {
		return nil
	}
	said := r.say(ringMessage{End: &n})
	go func() {
		for said != nil && r.session.Err() == nil { // too much is waiting to be sent
			time.Sleep(farewell / 100)
			said = r.say(ringMessage{End: &n})
		}
		<-r.peerDone
		r.abandon()
		if err := p.release(); err != nil {
			slog.Default().Error("ipc: ring not freed", "error", err)
		}
	}()
	return err
}

// release frees what the ring has, when the consumer has released it.
func (p *Producer[T]) release() error {
	p.ring.session.Withdraw(context.Background(), p.ring.memoryName())
	return p.ring.free(p.buffer)
}
