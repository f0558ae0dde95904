package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/ipc"
)

// consume takes all batches. It checks every element of the first half of them on the
// host, and copies the others within the device.
func consume(ctx context.Context, drv *cuda.Driver, session *ipc.Session, w work) (err error) {
	ring, err := ipc.NewConsumer[uint32](ctx, session, drv, "batches")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ring.Close()) }()
	c := &checker{ctx: ctx, ring: ring, words: source(w), length: w.length}
	if err := c.open(ring.Device()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	for range w.batches {
		if err := c.check(); err != nil {
			return err
		}
	}
	for len(c.pending) > 0 {
		if err := c.checkOldest(); err != nil {
			return err
		}
	}
	fmt.Printf("consumer: %d batches of %d bytes came, every byte was right\n", w.batches, 4*w.length)

	var last ipc.Batch[uint32]
	for {
		batch, err := ring.Next(ctx, c.stream)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := cuda.Copy(c.stream, c.own, batch.Buffer); err != nil {
			return err
		}
		if err := batch.Release(c.stream); err != nil {
			return err
		}
		if last != (ipc.Batch[uint32]{}) { // one behind, so that the device has work meanwhile
			if err := last.Confirm(ctx); err != nil {
				return ended(err)
			}
		}
		last = batch
	}
}

// ended is nil for the batch that was taken before the end was known.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// checker copies batches to the host and looks at them there, some batches later.
type checker struct {
	ctx     context.Context
	ring    *ipc.Consumer[uint32]
	words   []uint32
	length  int
	stream  *cuda.Stream
	own     *cuda.Buffer[uint32]
	host    []*cuda.HostBuffer[uint32]
	pending []copied
}

// copied is a batch on its way to the host.
type copied struct {
	batch ipc.Batch[uint32]
	host  *cuda.HostBuffer[uint32]
	there *cuda.Event
}

func (c *checker) open(dev *cuda.Device) (err error) {
	if c.stream, err = dev.NewStream(nil); err != nil {
		return err
	}
	if c.own, err = cuda.AllocAsync[uint32](c.stream, c.length); err != nil {
		return err
	}
	for range c.ring.Slots() {
		h, err := cuda.AllocHost[uint32](dev, c.length, nil)
		if err != nil {
			return err
		}
		c.host = append(c.host, h)
	}
	return nil
}

func (c *checker) check() error {
	if len(c.host) == 0 {
		if err := c.checkOldest(); err != nil {
			return err
		}
	}
	batch, err := c.ring.Next(c.ctx, c.stream)
	if err != nil {
		return err
	}
	host := c.host[len(c.host)-1]
	c.host = c.host[:len(c.host)-1]
	if err := cuda.Copy(c.stream, host, batch.Buffer); err != nil {
		return err
	}
	there, err := c.stream.RecordEvent(nil)
	if err != nil {
		return err
	}
	c.pending = append(c.pending, copied{batch, host, there})
	return batch.Release(c.stream)
}

// checkOldest waits for the oldest batch and compares it. Whether it ever came is
// asked before anything is made of it.
func (c *checker) checkOldest() error {
	p := c.pending[0]
	c.pending = c.pending[1:]
	if err := p.batch.Confirm(c.ctx); err != nil {
		return err
	}
	if err := p.there.SynchronizeContext(c.ctx); err != nil {
		return err
	}
	at := shift(p.batch.Number)
	if !slices.Equal(p.host.Slice(), c.words[at:at+c.length]) {
		return fmt.Errorf("batch %d is wrong", p.batch.Number)
	}
	c.host = append(c.host, p.host)
	return p.there.Close()
}

func (c *checker) close() error {
	err := c.stream.Synchronize()
	for _, p := range c.pending {
		c.host = append(c.host, p.host)
		err = errors.Join(err, p.there.Close())
	}
	for _, h := range c.host {
		err = errors.Join(err, h.Close())
	}
	return errors.Join(err, c.own.Close(), c.stream.Close())
}
