package ipc

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// lost is the error of all that a death has made impossible.
func lost(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.NotErrorIs(t, err, io.EOF)
}

// deaths are the ways in which an end of a duo can be lost to the other; after the
// second step nothing is left of it.
var deaths = map[string]func(d *duo, e *end) (gone func()){
	"killed": func(d *duo, e *end) func() {
		d.kill(e)
		return func() {}
	},
	"dying, and gone later": func(d *duo, e *end) func() {
		d.dead[e] = true
		e.sim.BeginKill()
		return e.sim.Kill
	},
	"disconnected": func(d *duo, e *end) func() {
		d.dead[e] = true
		e.Session.abandon()
		return e.sim.Kill
	},
}

func eachDeath(t *testing.T, f func(t *testing.T, d *duo, die func(e *end) (gone func()))) {
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t)
			f(t, d, func(e *end) func() { return die(d, e) })
		})
	}
}

// mayWrite reports whether the device may go on for an end that has died in this way.
func mayWrite(t testing.TB) bool {
	return !strings.HasSuffix(strings.Split(t.Name(), "#")[0], "/killed")
}

// lives reports whether the lost end is a process that lives, and may still use what it
// has: only the connection is broken.
func lives(t testing.TB) bool {
	return strings.HasSuffix(strings.Split(t.Name(), "#")[0], "/disconnected")
}

func TestRingProducerDiesBeforeTheFirstBatch(t *testing.T) {
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		_, c := d.ring(t, 2, 8)
		b := d.b.newStream(t)
		x, y := take(t, c, b), take(t, c, b)
		next := testgpu.Go(func() error { _, err := c.Next(context.Background(), b); return err })
		confirmed := testgpu.Go(func() error { return x.Confirm(context.Background()) })
		testgpu.NotReady(t, next)
		testgpu.NotReady(t, confirmed)
		gone := die(d.a)
		lost(t, testgpu.Receive(t, confirmed))
		lost(t, y.Confirm(within(t, 5*time.Second)))
		if err := testgpu.Receive(t, next); err != nil { // it was in the middle
			lost(t, err)
		}
		_, err := c.Next(t.Context(), b)
		lost(t, err)
		require.ErrorContains(t, err, "ring consume")
		d.b.runs(t, b)
		gone()
		require.NoError(t, finishes(t, c.Close))
		freed(t, d)
	})
}

// What had come is good; what had not never is, not even if it comes after all.
func TestRingProducerDiesAtWork(t *testing.T) {
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		p, c := d.ring(t, 4, 8)
		a, b := d.a.newStream(t), d.b.newStream(t)
		send(t, p, a, 0)
		require.NoError(t, a.Synchronize())
		release := d.hold(t, a)
		send(t, p, a, 1)
		send(t, p, a, 2)
		var batches []took
		for range 4 {
			batches = append(batches, take(t, c, b))
		}
		batches[0].has(t, 0)
		gone := die(d.a)
		for _, x := range batches[1:] {
			lost(t, x.Confirm(within(t, 5*time.Second)))
		}
		batches[0].has(t, 0)
		d.b.runs(t, b)

		release() // if the process is not gone entirely its writes come now
		if mayWrite(t) {
			word := c.ring.gate.(*counters).slots[1].word
			atomic.StoreUint32(word, 1) // and for certain
			time.Sleep(5 * time.Millisecond)
		}
		lost(t, batches[1].Confirm(within(t, 5*time.Second)))
		s := d.b.newStream(t)
		_, err := c.Next(t.Context(), s)
		lost(t, err)
		// The waits of before go on all the same.
		require.NoError(t, s.WaitValue(c.ring.gate.(*counters).slots[1].in, 2))
		d.b.runs(t, b, s)
		gone()
		lost(t, batches[2].Confirm(t.Context()))
		require.NoError(t, finishes(t, c.Close))
		freed(t, d)
	})
}

// The death is reported after all that was done has been taken.
func TestRingProducerDiesAfterSome(t *testing.T) {
	for _, closed := range []bool{false, true} {
		eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
			p, c := d.ring(t, 4, 8)
			for n := range uint32(3) {
				send(t, p, d.a.stream, n)
			}
			require.NoError(t, d.a.stream.Synchronize())
			if closed {
				require.NoError(t, p.Close())
				testgpu.WaitUntil(t, func() bool { return c.ring.gate.failed() != nil })
			}
			gone := die(d.a)
			testgpu.Receive(t, d.b.Done())
			for n := range uint32(3) {
				take(t, c, d.b.stream).has(t, n)
			}
			x, err := c.Next(within(t, 5*time.Second), d.b.stream)
			if err == nil { // the ring has not heard of it yet
				err = x.Confirm(within(t, 5*time.Second))
			}
			if closed {
				require.ErrorIs(t, err, io.EOF)
			} else {
				lost(t, err)
			}
			d.b.runs(t)
			require.NoError(t, finishes(t, c.Close))
			gone()
			freed(t, d)
		})
	}
}

// A producer that closed with batches under way and dies then has not sent them all.
func TestRingProducerDiesAfterItClosed(t *testing.T) {
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		p, c := d.ring(t, 4, 8)
		send(t, p, d.a.stream, 0)
		require.NoError(t, d.a.stream.Synchronize())
		release := d.hold(t, d.a.stream)
		send(t, p, d.a.stream, 1)
		require.NoError(t, p.Close())
		x, y := take(t, c, d.b.stream), take(t, c, d.b.stream)
		x.has(t, 0)
		testgpu.WaitUntil(t, func() bool { return c.ring.beyondEnd(2) }) // it knows how many there are
		gone := die(d.a)
		lost(t, y.Confirm(within(t, 5*time.Second)))
		_, err := c.Next(within(t, 5*time.Second), d.b.stream)
		require.ErrorIs(t, err, io.EOF, "there were no more")
		d.b.runs(t)
		release()
		gone()
		require.NoError(t, finishes(t, c.Close))
		freed(t, d)
	})
}

func TestRingConsumerDies(t *testing.T) {
	for _, used := range []int{0, 1} {
		eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
			p, c := d.ring(t, 2, 8)
			a := d.a.newStream(t)
			for n := range used {
				send(t, p, a, uint32(n))
				take(t, c, d.b.stream).has(t, uint32(n))
				require.NoError(t, d.b.stream.Synchronize())
			}
			release := d.hold(t, d.b.stream)
			for n := range 4 {
				send(t, p, a, uint32(n))
				if n < 2 {
					take(t, c, d.b.stream)
				}
			}
			flushed := testgpu.Go(func() error { return p.Flush(context.Background()) })
			next := testgpu.Go(func() error { _, err := p.Next(context.Background(), a); return err })
			testgpu.NotReady(t, flushed)
			gone := die(d.b)
			lost(t, testgpu.Receive(t, flushed))
			if err := testgpu.Receive(t, next); err != nil {
				lost(t, err)
			}
			_, err := p.Next(t.Context(), a)
			lost(t, err)
			require.ErrorContains(t, err, "ring produce")
			if lives(t) {
				testgpu.NotReady(t, testgpu.Go(a.Synchronize)) // what waits would overwrite what it uses
			} else {
				d.a.runs(t, a)
			}
			release() // its releases come late
			if mayWrite(t) {
				atomic.StoreUint32(p.ring.gate.(*counters).slots[0].word, 1)
				time.Sleep(5 * time.Millisecond)
			}
			lost(t, p.Flush(within(t, 5*time.Second)))
			require.NoError(t, p.Close())
			gone()
			d.a.runs(t, a)
			testgpu.WaitUntil(t, func() bool { return d.a.drv.Stats().Buffers == 0 })
		})
	}
}

// A consumer that was done with all had them: Flush says so also after its death.
func TestRingConsumerDiesAfterAll(t *testing.T) {
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		p, c := d.ring(t, 2, 8)
		for n := range uint32(5) {
			send(t, p, d.a.stream, n)
			take(t, c, d.b.stream).has(t, n)
		}
		require.NoError(t, d.b.stream.Synchronize())
		gone := die(d.b)
		testgpu.Receive(t, d.a.Done())
		testgpu.WaitUntil(t, func() bool { return p.ring.halt.Err() != nil })
		require.NoError(t, p.Flush(within(t, 5*time.Second)))
		_, err := p.Next(t.Context(), d.a.stream)
		lost(t, err)
		d.a.runs(t)
		gone()
		require.NoError(t, p.Close())
		testgpu.WaitUntil(t, func() bool { return d.a.drv.Stats().Buffers == 0 })
	})
}

// The memory is kept until nothing is left of the consumer, whose work may still go on.
func TestRingMemoryIsKeptUntilGone(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 8)
	send(t, p, d.a.stream, 1)
	take(t, c, d.b.stream).has(t, 1)
	d.dead[d.b] = true
	d.b.sim.BeginKill()
	testgpu.Receive(t, d.a.Done())
	require.NoError(t, p.Close())
	time.Sleep(testgpu.Soon)
	require.NotZero(t, d.a.drv.Stats().Buffers, "freed while the consumer's work may go on")
	require.NotZero(t, d.a.drv.Stats().HostBuffers)
	d.b.sim.Kill()
	testgpu.WaitUntil(t, func() bool { s := d.a.drv.Stats(); return s.Buffers == 0 && s.HostBuffers == 0 })
}

// Dying while a ring is set up.
func TestRingDeathInSetup(t *testing.T) {
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		made := testgpu.Go(func() error {
			_, err := NewProducer[uint32](context.Background(), d.a.Session, d.a.dev, "r", 2, 4)
			return err
		})
		testgpu.NotReady(t, made)
		gone := die(d.b)
		lost(t, testgpu.Receive(t, made))
		gone()
		testgpu.WaitUntil(t, func() bool { return d.a.drv.Stats().Buffers == 0 })
	})
	eachDeath(t, func(t *testing.T, d *duo, die func(*end) func()) {
		made := testgpu.Go(func() error {
			_, err := NewConsumer[uint32](context.Background(), d.b.Session, d.b.drv, "r")
			return err
		})
		testgpu.NotReady(t, made)
		gone := die(d.a)
		lost(t, testgpu.Receive(t, made))
		gone()
	})
}

// A thousand deaths in the middle of a flow would do; fifty are here.
func TestRingDeathsInAFlow(t *testing.T) {
	for i := range 25 {
		for _, victim := range []string{"producer", "consumer"} {
			d := newDuo(t)
			p, c := d.ring(t, 3, 16)
			x := newSource(t, d.a, 16)
			a, b := d.a.newStream(t), d.b.newStream(t)
			sent := testgpu.Go(func() error {
				for {
					slot, err := p.Next(context.Background(), a)
					if err == nil {
						err = x.fill(a, slot)
					}
					if err == nil {
						err = slot.Send(a)
					}
					if err != nil {
						return err
					}
				}
			})
			host, err := cuda.AllocHost[uint32](d.b.dev, 16, nil)
			require.NoError(t, err)
			wrong := make(chan uint64, 1)
			taken := testgpu.Go(func() error {
				for {
					batch, err := c.Next(context.Background(), b)
					if err == nil {
						err = cuda.Copy(b, host, batch.Buffer)
					}
					if err == nil {
						err = batch.Release(b)
					}
					if err == nil {
						err = batch.Confirm(context.Background())
					}
					if err == nil {
						err = b.Synchronize()
					}
					if err != nil {
						return err
					}
					if !x.is(host.Slice(), batch.Number) {
						wrong <- batch.Number
						return nil
					}
				}
			})
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			survivor, s := d.b, b
			if victim == "consumer" {
				survivor, s = d.a, a
				d.kill(d.b)
				lost(t, testgpu.Receive(t, sent))
				require.Error(t, testgpu.Receive(t, taken))
			} else {
				d.kill(d.a)
				lost(t, testgpu.Receive(t, taken))
				require.Error(t, testgpu.Receive(t, sent))
			}
			require.Empty(t, wrong, "a batch that is wrong was confirmed")
			survivor.runs(t, s)
			_ = host.Close()
			require.NoError(t, p.Close())
			_ = c.Close() // the dead process's driver has gone
			testgpu.WaitUntil(t, func() bool {
				return survivor == d.b && d.b.drv.Stats().Buffers == 0 || survivor == d.a && d.a.drv.Stats().Buffers == 1
			})
		}
	}
}
