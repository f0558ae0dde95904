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

// produce sends all batches twice: the consumer checks the first ones, and copies the
// others within the device, as fast as it can.
func produce(ctx context.Context, dev *cuda.Device, session *ipc.Session, w work) (err error) {
	s, err := dev.NewStream(nil)
	if err != nil {
		return err
	}
	words := source(w)
	from, err := cuda.AllocAsync[uint32](s, len(words))
	if err != nil {
		return err
	}
	to, err := cuda.AllocAsync[uint32](s, w.length)
	if err != nil {
		return err
	}
	ring, err := ipc.NewProducer[uint32](ctx, session, dev, "batches", w.slots, w.length)
	if err != nil {
		return err
	}
	for _, c := range []io.Closer{s, from, to, ring} {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	if err := cuda.CopyFromSlice(ctx, s, from, words); err != nil {
		return err
	}

	if err := send(ctx, s, ring, from, w); err != nil {
		return err
	}
	if err := s.Synchronize(); err != nil {
		return err
	}
	began := time.Now()
	if err := send(ctx, s, ring, from, w); err != nil {
		return err
	}
	through := time.Since(began)

	began = time.Now()
	for n := range uint64(w.batches) {
		part, err := from.Range(shift(n), shift(n)+w.length)
		if err != nil {
			return err
		}
		if err := cuda.Copy(s, to, part); err != nil {
			return err
		}
	}
	if err := s.Synchronize(); err != nil {
		return err
	}
	copied := time.Since(began)

	rate := func(d time.Duration) float64 { return float64(w.batches) * float64(w.length) * 4 / d.Seconds() / 1e9 }
	fmt.Printf("producer: %d batches of %d bytes through the ring, a copy in and a copy out: %.1f GB/s, %.1f µs a batch\n",
		w.batches, 4*w.length, rate(through), through.Seconds()*1e6/float64(w.batches))
	fmt.Printf("producer: as many copies within the device, by one process:                %.1f GB/s, %.1f µs a copy\n",
		rate(copied), copied.Seconds()*1e6/float64(w.batches))
	return nil
}

// send sends all batches, and waits until the consumer has used them.
func send(ctx context.Context, s *cuda.Stream, ring *ipc.Producer[uint32], from *cuda.Buffer[uint32], w work) error {
	for range w.batches {
		slot, err := ring.Next(ctx, s)
		if err != nil {
			return err
		}
		at := shift(slot.Number % uint64(w.batches))
		part, err := from.Range(at, at+w.length)
		if err != nil {
			return err
		}
		if err := cuda.Copy(s, slot.Buffer, part); err != nil {
			return err
		}
		if err := slot.Send(s); err != nil {
			return err
		}
	}
	return ring.Flush(ctx)
}
