package ipc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/purecuda/cuda"
)

// copier takes batches of a ring and copies them, to the host if they are to be
// compared with words and else within the device. They are confirmed some batches
// later.
type copier struct {
	ring    *Consumer[uint32]
	stream  *cuda.Stream
	words   []uint32
	length  int
	own     *cuda.Buffer[uint32]
	hosts   []*cuda.HostBuffer[uint32]
	pending []took
	good    int // were confirmed
	work    func() error
}

func newCopier(c *Consumer[uint32], s *cuda.Stream, words []uint32) (*copier, error) {
	x := &copier{ring: c, stream: s, words: words, length: c.parts[0].Len()}
	if words == nil {
		var err error
		x.own, err = cuda.Alloc[uint32](c.Device(), x.length)
		return x, err
	}
	for range c.Slots() + 1 {
		h, err := cuda.AllocHost[uint32](c.Device(), x.length, nil)
		if err != nil {
			return x, err
		}
		x.hosts = append(x.hosts, h)
	}
	return x, nil
}

// take takes the next batch, has it copied, and releases it.
func (x *copier) take(ctx context.Context) error {
	batch, err := x.ring.Next(ctx, x.stream)
	if err != nil {
		return err
	}
	t := took{Batch: batch}
	if x.work != nil {
		if err := x.work(); err != nil {
			return err
		}
	}
	if x.words == nil {
		err = cuda.Copy(x.stream, x.own, batch.Buffer)
	} else {
		t.host = x.hosts[len(x.hosts)-1]
		x.hosts = x.hosts[:len(x.hosts)-1]
		if err = cuda.Copy(x.stream, t.host, batch.Buffer); err == nil {
			t.there, err = x.stream.RecordEvent(nil)
		}
	}
	if err != nil {
		return err
	}
	x.pending = append(x.pending, t)
	return batch.Release(x.stream)
}

// check confirms the oldest batch, and compares it.
func (x *copier) check(ctx context.Context) (err error) {
	t := x.pending[0]
	x.pending = x.pending[1:]
	if t.host != nil {
		defer func() {
			x.hosts = append(x.hosts, t.host)
			err = errors.Join(err, t.there.Close())
		}()
	}
	if err := t.Confirm(ctx); err != nil {
		return err
	}
	x.good++
	if t.host == nil {
		return nil
	}
	if err := t.there.SynchronizeContext(ctx); err != nil {
		return err
	}
	at := shift(t.Number)
	if !slices.Equal(t.host.Slice(), x.words[at:at+x.length]) {
		return fmt.Errorf("batch %d was confirmed, and is wrong", t.Number)
	}
	return nil
}

func (x *copier) close() error {
	err := x.stream.Synchronize()
	for _, t := range x.pending {
		if t.host != nil {
			err = errors.Join(err, t.there.Close())
			x.hosts = append(x.hosts, t.host)
		}
	}
	for _, h := range x.hosts {
		err = errors.Join(err, h.Close())
	}
	if x.own != nil {
		err = errors.Join(err, x.own.Close())
	}
	return err
}
