package ipc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// fallbacks are tables of which one at least has no counters.
var fallbacks = map[string][]func(*driver.API){
	"an old driver at the producer":        {noCounters, nil},
	"an old driver at the consumer":        {nil, noCounters},
	"a device at the producer that cannot": {refusesCounters, nil},
	"a device at the consumer that cannot": {nil, refusesCounters},
	"both":                                 {noCounters, refusesCounters},
}

func eachFallback(t *testing.T, f func(t *testing.T, d *duo)) {
	for name, changes := range fallbacks {
		t.Run(name, func(t *testing.T) { f(t, newDuo(t, changes...)) })
	}
}

func TestRingOfEvents(t *testing.T) {
	eachFallback(t, func(t *testing.T, d *duo) {
		flow{slots: 3, batches: 300, streams: 2, group: 2}.run(t, d)
	})
	eachFallback(t, func(t *testing.T, d *duo) {
		p, c := d.ring(t, 2, 8)
		require.IsType(t, &events{}, p.ring.gate)
		require.IsType(t, &events{}, c.ring.gate)
		require.Zero(t, d.a.drv.Stats().HostBuffers)

		// The host waits for each batch.
		release := d.hold(t, d.a.stream)
		send(t, p, d.a.stream, 1)
		_, err := c.Next(within(t, testgpu.Soon), d.b.stream)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, p.Flush(within(t, testgpu.Soon)), context.DeadlineExceeded)
		release()
		take(t, c, d.b.stream).has(t, 1)
		require.NoError(t, p.Flush(t.Context()))

		release = d.hold(t, d.b.stream)
		for n := range uint32(2) {
			send(t, p, d.a.stream, n)
		}
		x := take(t, c, d.b.stream)
		_, err = p.Next(within(t, testgpu.Soon), d.a.stream)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		release()
		x.has(t, 0)
		take(t, c, d.b.stream).has(t, 1)
		require.NoError(t, p.Close())
		ends(t, c, d.b.stream, 0)
	})
}

// Every slot has two events, and both ends announce them while they are made.
func TestRingOfManyEvents(t *testing.T) {
	d := newDuo(t, noCounters)
	p, c := d.ring(t, maxSlots, 1)
	for n := range uint32(maxSlots + 10) {
		send(t, p, d.a.stream, n)
		take(t, c, d.b.stream).has(t, n)
	}
	require.NoError(t, p.Flush(within(t, 5*time.Second)))
}

func TestRingOfEventsProducerDies(t *testing.T) {
	eachDeathOf(t, noCounters, func(t *testing.T, d *duo, die func(*end) func()) {
		p, c := d.ring(t, 4, 8)
		send(t, p, d.a.stream, 0)
		require.NoError(t, d.a.stream.Synchronize())
		take(t, c, d.b.stream).has(t, 0)
		release := d.hold(t, d.a.stream)
		send(t, p, d.a.stream, 1)
		testgpu.WaitUntil(t, func() bool { // its signal is there, and the work is not done
			g := c.ring.gate.(*events)
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.rounds[1] == 1
		})
		next := testgpu.Go(func() error { _, err := c.Next(context.Background(), d.b.stream); return err })
		testgpu.NotReady(t, next)
		gone := die(d.a)
		if strings.HasSuffix(t.Name(), "/disconnected") {
			release() // it lives, and its work is good
			require.NoError(t, testgpu.Receive(t, next))
		} else {
			lost(t, testgpu.Receive(t, next))
		}
		_, err := c.Next(within(t, 5*time.Second), d.b.stream)
		lost(t, err)
		d.b.runs(t)
		release()
		gone()
		require.NoError(t, finishes(t, c.Close))
		freed(t, d)
	})
}

func TestRingOfEventsConsumerDies(t *testing.T) {
	eachDeathOf(t, noCounters, func(t *testing.T, d *duo, die func(*end) func()) {
		p, c := d.ring(t, 1, 8)
		send(t, p, d.a.stream, 0)
		take(t, c, d.b.stream).has(t, 0)
		send(t, p, d.a.stream, 1)
		next := testgpu.Go(func() error { _, err := p.Next(context.Background(), d.a.stream); return err })
		flushed := testgpu.Go(func() error { return p.Flush(context.Background()) })
		testgpu.NotReady(t, next)
		gone := die(d.b)
		lost(t, testgpu.Receive(t, next))
		lost(t, testgpu.Receive(t, flushed))
		d.a.runs(t)
		require.NoError(t, p.Close())
		gone()
		freed(t, d)
	})
}

func TestRingOfEventsEnds(t *testing.T) {
	for _, sessionToo := range []bool{false, true} {
		d := newDuo(t, nil, noCounters)
		p, c := d.ring(t, 4, 8)
		release := d.hold(t, d.a.stream)
		for n := range uint32(3) {
			send(t, p, d.a.stream, n)
		}
		require.NoError(t, p.Close())
		if sessionToo {
			require.NoError(t, d.a.Session.Close())
		}
		_, err := c.Next(within(t, testgpu.Soon), d.b.stream)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		release()
		ends(t, c, d.b.stream, 3)
	}
	d := newDuo(t, noCounters)
	p, c := d.ring(t, 1, 8)
	send(t, p, d.a.stream, 1)
	next := testgpu.Go(func() error { _, err := p.Next(context.Background(), d.a.stream); return err })
	testgpu.NotReady(t, next)
	require.NoError(t, c.Close())
	require.ErrorIs(t, testgpu.Receive(t, next), ErrLeft)
	require.ErrorIs(t, p.Flush(t.Context()), ErrLeft)
	d.a.runs(t)
	require.NoError(t, p.Close())
	freed(t, d)
}

// A consumer that closes receives what was sent meanwhile by signals that nobody
// receives: they must not break the session.
func TestRingOfEventsSignalsAfterTheEnd(t *testing.T) {
	d := newDuo(t, noCounters)
	p, c := d.ring(t, 200, 1)
	var slots []Slot[uint32]
	for range 200 {
		slot, err := p.Next(t.Context(), d.a.stream)
		require.NoError(t, err)
		slots = append(slots, slot)
	}
	require.NoError(t, c.Close())
	for _, slot := range slots {
		_ = slot.Send(d.a.stream)
	}
	require.NoError(t, p.Close())
	freed(t, d)
	time.Sleep(testgpu.Soon)
	require.NoError(t, d.a.Err())
	require.NoError(t, d.b.Err())
}

// eachDeathOf is eachDeath with a producer that has another table.
func eachDeathOf(t *testing.T, change func(*driver.API), f func(t *testing.T, d *duo, die func(e *end) (gone func()))) {
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t, change)
			f(t, d, func(e *end) func() { return die(d, e) })
		})
	}
}

// A peer that sets its words back loses its own batches.
func TestRingCountersSetBack(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 8)
	for n := range uint32(4) {
		send(t, p, d.a.stream, n)
		take(t, c, d.b.stream).has(t, n)
	}
	send(t, p, d.a.stream, 4)
	x := take(t, c, d.b.stream)
	d.b.runs(t)
	word := c.ring.gate.(*counters).slots[0].word
	atomic.StoreUint32(word, 0)
	require.ErrorContains(t, x.Confirm(t.Context()), "back")
	require.NoError(t, p.Close())
	time.Sleep(5 * time.Millisecond)
	require.Error(t, x.Confirm(within(t, testgpu.Soon)), "it cannot be confirmed any more")
	require.NoError(t, finishes(t, c.Close))
	d.b.runs(t)
	freed(t, d)
}
