package ipc

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestRingArguments(t *testing.T) {
	d := newDuo(t)
	for _, test := range []struct {
		name          string
		slots, length int
		says          string
	}{
		{"r", 0, 1, "0 slots"},
		{"r", -1, 1, "-1 slots"},
		{"r", maxSlots + 1, 1, "1025 slots"},
		{"r", 1, 0, "0 elements"},
		{"r", 1, -1, "-1 elements"},
		{"r", 2, math.MaxInt, "elements"},
		{"r", 3, math.MaxInt/3 + 1, "elements"},
		{"", 1, 1, "the name of a ring has 1 to 228 bytes, this has 0"},
		{"a\nb", 1, 1, "printable"},
		{strings.Repeat("n", 229), 1, 1, "the name of a ring has 1 to 228 bytes, this has 229"},
		{strings.Repeat("n", 250), 1, 1, "this has 250"},
	} {
		_, err := NewProducer[uint32](within(t, 200*time.Millisecond), d.a.Session, d.a.dev, test.name, test.slots, test.length)
		require.ErrorIs(t, err, cuda.ErrInvalid, "%+v", test)
		require.ErrorContains(t, err, test.says)
		require.ErrorContains(t, err, "ring produce")
	}
	_, err := NewProducer[uint32](t.Context(), nil, d.a.dev, "r", 1, 1)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = NewProducer[uint32](t.Context(), d.a.Session, nil, "r", 1, 1)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = NewConsumer[uint32](t.Context(), nil, d.b.drv, "r")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = NewConsumer[uint32](t.Context(), d.b.Session, nil, "r")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	for _, name := range []string{"a\tb", strings.Repeat("n", 229)} {
		_, err = NewConsumer[uint32](within(t, 200*time.Millisecond), d.b.Session, d.b.drv, name)
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}

	p, c := d.ring(t, 2, 4)
	require.Equal(t, 2, p.Slots())
	require.Equal(t, 2, c.Slots())
	require.Same(t, d.b.dev, c.Device())
	testgpu.WaitUntil(t, func() bool { return d.a.drv.Stats().Buffers == 2 }) // this ring's, and the offer of it
}

// A name of the greatest length fits with every number that a ring can get.
func TestRingLongestName(t *testing.T) {
	d := newDuo(t)
	d.a.rings.last = math.MaxUint64 - 1
	p, c := newTestRing(t, d.a, d.b, strings.Repeat("n", 228), 2, 4)
	send(t, p, d.a.stream, 1)
	take(t, c, d.b.stream).has(t, 1)
}

// Streams that are not of the ring's device say why.
func TestRingStreams(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 4)
	_, err := p.Next(t.Context(), d.b.stream)
	require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	require.ErrorContains(t, err, "they come from two different drivers")
	_, err = c.Next(t.Context(), d.a.stream)
	require.ErrorContains(t, err, "they come from two different drivers")
	for _, s := range []*cuda.Stream{nil, new(cuda.Stream)} {
		_, err = p.Next(t.Context(), s)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "the stream is nil")
	}
}

// More memory than there is: the consumer gets the error too, and the name can be used again.
func TestRingTooLarge(t *testing.T) {
	d := newDuo(t)
	made := testgpu.Go(func() error {
		_, err := NewConsumer[uint32](context.Background(), d.b.Session, d.b.drv, "r")
		return err
	})
	d.b.wants(t, "r") // before, what is said of the ring is for nobody
	_, err := NewProducer[uint32](t.Context(), d.a.Session, d.a.dev, "r", 1, math.MaxInt32)
	require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	require.Error(t, testgpu.Receive(t, made))
	freed(t, d)
	again(t, d)
}

func TestRingWrongElements(t *testing.T) {
	d := newDuo(t)
	made := testgpu.Go(func() error {
		_, err := NewProducer[uint32](within(t, 10*time.Second), d.a.Session, d.a.dev, "r", 2, 4)
		return err
	})
	_, err := NewConsumer[uint64](within(t, 10*time.Second), d.b.Session, d.b.drv, "r")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "4 bytes, and not 8")
	err = testgpu.Receive(t, made)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "4 bytes, and not 8")
	testgpu.WaitUntil(t, func() bool { return d.a.live() == 0 && d.b.live() == 0 })
}

func TestRingOfAnotherName(t *testing.T) {
	d := newDuo(t)
	made := testgpu.Go(func() error {
		_, err := NewProducer[uint32](within(t, 50*time.Millisecond), d.a.Session, d.a.dev, "one", 2, 4)
		return err
	})
	_, err := NewConsumer[uint32](within(t, 50*time.Millisecond), d.b.Session, d.b.drv, "other")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "other")
	err = testgpu.Receive(t, made)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "one")
	testgpu.WaitUntil(t, func() bool { return d.a.live() == 0 && d.b.live() == 0 })
}

func TestRingMisuse(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 4)
	a, b := d.a.stream, d.b.stream
	s0, err := p.Next(t.Context(), a)
	require.NoError(t, err)
	s1, err := p.Next(t.Context(), a)
	require.NoError(t, err)
	_, err = p.Next(t.Context(), a)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "batch 0 of ring r is still in use")
	old := s0
	require.NoError(t, s0.Send(a))
	require.ErrorIs(t, s0.Send(a), cuda.ErrInvalid)
	require.ErrorContains(t, s0.Send(a), "before")
	require.NoError(t, s1.Send(a))

	b0, err := c.Next(t.Context(), b)
	require.NoError(t, err)
	b1, err := c.Next(t.Context(), b)
	require.NoError(t, err)
	_, err = c.Next(t.Context(), b)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.NoError(t, b0.Release(b))
	require.ErrorIs(t, b0.Release(b), cuda.ErrInvalid)
	require.NoError(t, b1.Release(b))

	// A copy of a slot of a round that is over.
	s2, err := p.Next(t.Context(), a)
	require.NoError(t, err)
	require.EqualValues(t, 2, s2.Number)
	require.ErrorIs(t, old.Send(a), cuda.ErrInvalid)
	require.NoError(t, s2.Send(a))
	b2, err := c.Next(t.Context(), b)
	require.NoError(t, err)
	require.ErrorIs(t, b0.Release(b), cuda.ErrInvalid)
	require.NoError(t, b2.Release(b))
	require.NoError(t, b0.Confirm(t.Context()))
	require.NoError(t, b2.Confirm(t.Context()))
	require.NoError(t, b2.Confirm(t.Context()), "again")

	s3, err := p.Next(t.Context(), a)
	require.NoError(t, err)
	b3, err := c.Next(t.Context(), b)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, s3.Send(a), cuda.ErrClosed)
	require.ErrorIs(t, p.Flush(t.Context()), cuda.ErrClosed)
	_, err = p.Next(t.Context(), a)
	require.ErrorIs(t, err, cuda.ErrClosed)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, b3.Release(b), cuda.ErrClosed)
	_, err = c.Next(t.Context(), b)
	require.ErrorIs(t, err, cuda.ErrClosed)
	require.Error(t, b3.Confirm(t.Context()))
	require.NoError(t, b2.Confirm(t.Context()), "it was good")
	d.b.runs(t)
	d.a.runs(t)
}

// What is not sent because its stream is closed can be sent on another.
func TestRingGivenBackOnAClosedStream(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 1, 4)
	closed, err := d.a.dev.NewStream(nil)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	slot, err := p.Next(t.Context(), d.a.stream)
	require.NoError(t, err)
	require.Error(t, slot.Send(nil))
	require.ErrorIs(t, slot.Send(closed), cuda.ErrClosed)
	require.NoError(t, slot.Send(d.a.stream), "a Send that failed can be repeated")
	x, err := c.Next(t.Context(), d.b.stream)
	require.NoError(t, err)
	require.NoError(t, x.Confirm(within(t, 5*time.Second)))
	require.Error(t, x.Release(nil))
	require.NoError(t, x.Release(d.b.stream), "a Release that failed can be repeated")
	require.NoError(t, p.Flush(within(t, 5*time.Second)))
	_, err = c.Next(t.Context(), nil)
	require.Error(t, err)
	send(t, p, d.a.stream, 5)
	take(t, c, d.b.stream).has(t, 5)
}

// A Next that failed leaves a zero value, which some will use all the same.
func TestRingZeroValues(t *testing.T) {
	require.NotPanics(t, func() {
		require.ErrorIs(t, Slot[uint32]{}.Send(nil), cuda.ErrInvalid)
		require.ErrorIs(t, Batch[uint32]{}.Release(nil), cuda.ErrInvalid)
		require.ErrorIs(t, Batch[uint32]{}.Confirm(t.Context()), cuda.ErrInvalid)
	})
}

// A second ring of a name that is in use is refused, and the first goes on.
func TestRingNameInUse(t *testing.T) {
	for _, of := range []string{"producer", "consumer"} {
		t.Run(of, func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 2, 4)
			send(t, p, d.a.stream, 1)
			take(t, c, d.b.stream).has(t, 1)
			var err error
			if of == "producer" {
				_, err = NewProducer[uint32](within(t, 5*time.Second), d.a.Session, d.a.dev, "r", 2, 4)
			} else {
				_, err = NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
			}
			require.ErrorIs(t, err, cuda.ErrInvalid)
			time.Sleep(testgpu.Soon)
			for n := range uint32(10) {
				send(t, p, d.a.stream, n)
				take(t, c, d.b.stream).has(t, n)
			}
			require.NoError(t, p.Flush(within(t, 5*time.Second)))
		})
	}
}
