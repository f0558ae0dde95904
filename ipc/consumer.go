package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/purecuda/cuda"
)

// Consumer is the end of a ring that uses batches:
//
//	batch, err := c.Next(ctx, s) // s waits, on the device, until the batch is there
//	...                          // enqueue on s what uses batch.Buffer
//	err = batch.Release(s)       // the producer may fill the slot again when s has come here
//	err = batch.Confirm(ctx)     // was it really there?
//
// Next returns before the batch has come. If it never comes, because the producer dies
// or has ended, the stream goes on all the same, on whatever is in the slot, and Confirm
// says so: what was computed from a batch counts only if Confirm returned nil. To keep
// the device busy, confirm a batch some batches later.
//
// Several goroutines may share a Consumer.
type Consumer[T cuda.Element] struct {
	ring   *ring
	buffer *cuda.Buffer[T]
	parts  []*cuda.Buffer[T]
}

// Batch is one batch of a ring, to be used.
type Batch[T cuda.Element] struct {
	// Buffer is the memory of the batch, for work that is enqueued between Next and
	// Release. It must not be closed.
	Buffer *cuda.Buffer[T]
	// Number counts the batches of the ring, from 0.
	Number uint64

	consumer *Consumer[T]
}

// NewConsumer takes the ring that the peer of s offers under name by [NewProducer], for
// which it waits. The elements must have the same size. The memory is opened on the
// device of drv that it is on. The consumer must be closed.
func NewConsumer[T cuda.Element](ctx context.Context, s *Session, drv *cuda.Driver, name string) (*Consumer[T], error) {
	const op = "ring consume"
	if err := s.usable(op); err != nil {
		return nil, err
	}
	if drv == nil {
		return nil, invalid(op, "the driver is nil")
	}
	if err := checkRing(op, name, 1, 1); err != nil {
		return nil, err
	}
	c := &Consumer[T]{ring: newRing(s, name, 0)}
	if ready, err := c.setUp(ctx, op, drv); err != nil {
		if ready {
			c.ring.say(ringMessage{Closed: true, Error: err.Error()})
		}
		c.ring.abandon()
		c.release()
		return nil, err
	}
	s.rings.opened(c.ring, c)
	c.ring.run(true)
	return c, nil
}

// setUp reports whether the producer takes the ring for set up.
func (c *Consumer[T]) setUp(ctx context.Context, op string, drv *cuda.Driver) (ready bool, err error) {
	r := c.ring
	for err = errGivenUp; err == errGivenUp; {
		m, found, ok := r.session.rings.consume(r)
		if !ok {
			return false, r.inUse(op)
		}
		if !found {
			if m, err = r.greet(ctx, op); err != nil {
				return false, err
			}
		}
		err = c.accept(ctx, op, drv, m)
		m.drop()
		if err == errGivenUp {
			r.session.rings.leave(r)
		}
	}
	if err != nil {
		r.say(ringMessage{Ready: &ringReady{Error: err.Error()}}) // the error here says more
		return false, err
	}
	r.dev = c.buffer.Device()
	if err := r.say(ringMessage{Ready: &ringReady{Counters: r.gate != nil}}); err != nil || r.gate != nil {
		return true, err
	}
	events, err := newEvents(ctx, op, r, r.dev)
	if err != nil {
		return true, err
	}
	r.gate = events
	return true, nil
}

// errGivenUp: the producer has described the ring, and has not waited long enough.
var errGivenUp = errors.New("the producer has given up")

// accept takes what the producer has described.
func (c *Consumer[T]) accept(ctx context.Context, op string, drv *cuda.Driver, m ringMessage) (err error) {
	r, setup := c.ring, m.Setup
	if setup == nil {
		return r.broken(op, "the ring was to be described")
	}
	if err := checkRing(op, r.name, setup.Slots, setup.Length); err != nil {
		return err
	}
	if size := int(unsafe.Sizeof(*new(T))); setup.Element != size {
		return &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: fmt.Sprintf("the elements of ring %s have %d bytes, and not %d", r.name, setup.Element, size)}
	}
	r.setSlots(setup.Slots)
	// It was offered before, or has been withdrawn since.
	now, cancel := context.WithCancel(ctx)
	cancel()
	c.buffer, err = Buffer[T](now, r.session, drv, r.memoryName())
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return errGivenUp
	case err != nil:
		return err
	}
	if c.buffer.Len() != setup.Slots*setup.Length {
		return r.broken(op, "its memory has another size than it says")
	}
	if c.parts, err = parts(c.buffer, setup.Slots); err != nil {
		return err
	}
	if !setup.Counters || m.file == nil {
		return nil
	}
	counters, err := newCounters(c.buffer.Device(), m.file, setup.Slots, false)
	switch {
	case err == nil:
		r.gate = counters
	case !isUnsupported(err):
		return err
	}
	return nil
}

// Device returns the device that the memory is on.
func (c *Consumer[T]) Device() *cuda.Device {
	if !c.made() {
		return nil
	}
	return c.ring.dev
}

// Slots returns the number of buffers.
func (c *Consumer[T]) Slots() int {
	if !c.made() {
		return 0
	}
	return c.ring.slots
}

// Next returns the next batch. What is enqueued on s from now on waits until the
// producer has filled it. The host waits only if it is ahead of the device by all slots
// already, until ctx is done; on a device whose streams cannot wait for counters it
// waits until the batch is there.
//
// After the last batch the error is [io.EOF], as soon as the end is known; else the
// batch's Confirm says so. If the producer is gone the error matches [cuda.ErrPeerGone],
// and if it has left without ending the ring, [ErrLeft]: batches that it had finished
// come first. If all slots are with the caller the error matches [cuda.ErrInvalid].
func (c *Consumer[T]) Next(ctx context.Context, s *cuda.Stream) (Batch[T], error) {
	const op = "ring consume"
	if err := c.usable(op); err != nil {
		return Batch[T]{}, err
	}
	r := c.ring
	if err := r.fits(op, s); err != nil {
		return Batch[T]{}, err
	}
	n, slot, err := r.take(ctx, op)
	if err != nil {
		return Batch[T]{}, err
	}
	defer r.giveTurn()
	if err := r.await(ctx, s, slot, n/uint64(r.slots)+1); err != nil {
		return Batch[T]{}, renamed(op, err)
	}
	if err := r.taken(op, slot); err != nil {
		return Batch[T]{}, err
	}
	return Batch[T]{Buffer: c.parts[slot], Number: n, consumer: c}, nil
}

// Release gives the slot back: the producer may fill it again when s has come to this
// point. s is the stream that uses the batch, or one that waits for that.
func (b Batch[T]) Release(s *cuda.Stream) error {
	const op = "ring release"
	if b.consumer == nil {
		return noBatch(op)
	}
	return b.consumer.ring.give(op, s, b.Number)
}

// Confirm waits until the stream has passed the beginning of the batch, or ctx is done.
// It returns nil if the batch was complete then. If it was lost the error matches
// [cuda.ErrPeerGone] or [ErrLeft]; if there was no such batch any more it is [io.EOF].
// In these cases what was computed from it is void.
func (b Batch[T]) Confirm(ctx context.Context) error {
	const op = "ring confirm"
	if b.consumer == nil {
		return noBatch(op)
	}
	r := b.consumer.ring
	err := r.gate.confirm(ctx, int(b.Number%uint64(r.slots)), b.Number/uint64(r.slots)+1)
	if err == nil && r.beyondEnd(b.Number) {
		err = io.EOF
	}
	return renamed(op, err)
}

// Close gives the ring up. Streams that wait for batches go on; those batches are lost.
// It blocks until the device no longer uses the memory, and tells the producer.
// Closing again is nil; closing the session closes its rings.
func (c *Consumer[T]) Close() error {
	if !c.made() {
		return nil
	}
	r := c.ring
	if _, ok, _ := r.close("ring close"); !ok {
		return nil
	}
	err := c.release()
	r.say(ringMessage{Closed: true}) // if nobody is there to hear it, it does not matter
	r.abandon()
	return err
}

// release closes what the ring has.
func (c *Consumer[T]) release() error { return c.ring.free(c.buffer) }
