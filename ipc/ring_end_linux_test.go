package ipc

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// ends wants all that is sent to come, n batches of the values from 0 on, and then the
// end.
func ends(t *testing.T, c *Consumer[uint32], s *cuda.Stream, n int) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	for i := 0; ; i++ {
		batch, err := c.Next(ctx, s)
		if err == nil {
			require.NoError(t, batch.Release(s))
			err = batch.Confirm(ctx)
		}
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, n, i, "batches before the end")
			break
		}
	}
	_, err := c.Next(ctx, s)
	require.ErrorIs(t, err, io.EOF)
}

// What was sent comes, then the end, however the producer leaves.
func TestRingProducerCloses(t *testing.T) {
	for _, how := range []string{"ring", "ring and session", "ring and session, slowly"} {
		for _, sent := range []int{0, 1, 3, 4} {
			for _, unsent := range []int{0, 1} {
				for _, held := range []bool{false, true} {
					t.Run(how, func(t *testing.T) {
						d := newDuo(t)
						p, c := d.ring(t, 4, 8)
						a := d.a.newStream(t)
						release := func() {}
						if held {
							release = d.hold(t, a)
						}
						for n := range sent {
							send(t, p, a, uint32(n))
						}
						for range min(unsent, 4-sent) {
							_, err := p.Next(t.Context(), a)
							require.NoError(t, err)
						}
						var early []took
						for range min(2, sent+1) {
							early = append(early, take(t, c, d.b.stream))
						}
						require.NoError(t, p.Close())
						if how != "ring" {
							if how == "ring and session, slowly" {
								time.Sleep(5 * time.Millisecond)
							}
							require.NoError(t, d.a.Session.Close())
						}
						if held {
							time.Sleep(5 * time.Millisecond)
						}
						release()
						for n, x := range early {
							if n < sent {
								x.has(t, uint32(n))
							} else {
								require.ErrorIs(t, x.Confirm(within(t, 5*time.Second)), io.EOF)
							}
						}
						if len(early) <= sent {
							ends(t, c, d.b.newStream(t), sent-len(early))
						}
						d.b.runs(t)
						require.NoError(t, c.Close())
						freed(t, d)
					})
				}
			}
		}
	}
}

// freed wants the rings to be freed, at each end that lives.
func freed(t testing.TB, d *duo) {
	t.Helper()
	for _, e := range []*end{d.a, d.b} {
		testgpu.WaitUntil(t, func() bool { return d.dead[e] || e.drv.Stats().Buffers == 0 })
	}
}

// A slot that was not sent in time hides those behind it, and no others.
func TestRingClosedWithAGap(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 3, 8)
	var slots [3]Slot[uint32]
	for i := range slots {
		var err error
		slots[i], err = p.Next(t.Context(), d.a.stream)
		require.NoError(t, err)
	}
	require.NoError(t, slots[2].Send(d.a.stream))
	require.NoError(t, slots[0].Send(d.a.stream))
	err := p.Close()
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "batch 1 of ring r was not sent, so that batch 2, which was, is lost")
	require.NoError(t, p.Close())
	ends(t, c, d.b.stream, 1)
}

func TestRingConsumerCloses(t *testing.T) {
	for _, how := range []string{"ring", "ring and session", "session"} {
		t.Run(how, func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 2, 8)
			a := d.a.newStream(t)
			send(t, p, a, 1)
			take(t, c, d.b.stream).has(t, 1)
			for n := range uint32(4) { // the last two wait for releases that never come
				send(t, p, a, n)
			}
			flushed := testgpu.Go(func() error { return p.Flush(context.Background()) })
			next := testgpu.Go(func() error {
				_, err := p.Next(context.Background(), a)
				return err
			})
			testgpu.NotReady(t, flushed)
			testgpu.NotReady(t, next)
			if how != "session" {
				require.NoError(t, finishes(t, c.Close))
			}
			if how != "ring" {
				require.NoError(t, finishes(t, d.b.Session.Close))
			}
			require.ErrorIs(t, testgpu.Receive(t, flushed), ErrLeft)
			if err := testgpu.Receive(t, next); err != nil { // it was in the middle
				require.ErrorIs(t, err, ErrLeft)
			}
			_, err := p.Next(t.Context(), a)
			require.ErrorIs(t, err, ErrLeft)
			require.ErrorIs(t, p.Flush(t.Context()), ErrLeft)
			d.a.runs(t, a)
			d.b.runs(t)
			require.NoError(t, p.Close())
			require.NoError(t, finishes(t, c.Close))
			freed(t, d)
		})
	}
}

// The consumer closes while its stream waits for what is never sent.
func TestRingConsumerClosesWaiting(t *testing.T) {
	for _, how := range []string{"ring", "session"} {
		t.Run(how, func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 2, 8)
			b := d.b.newStream(t)
			x := take(t, c, b)
			confirmed := testgpu.Go(func() error { return x.Confirm(context.Background()) })
			testgpu.NotReady(t, confirmed)
			if how == "ring" {
				require.NoError(t, finishes(t, c.Close))
			} else {
				require.NoError(t, finishes(t, d.b.Session.Close))
			}
			require.ErrorIs(t, testgpu.Receive(t, confirmed), cuda.ErrClosed)
			d.b.runs(t, b)
			require.NoError(t, finishes(t, c.Close))
			require.NoError(t, p.Close())
			freed(t, d)
		})
	}
}

// Closing the producer's session closes its ring.
func TestRingProducerLeaves(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 3, 8)
	send(t, p, d.a.stream, 1)
	x, y := take(t, c, d.b.stream), take(t, c, d.b.stream)
	x.has(t, 1)
	release := d.hold(t, d.a.stream)
	send(t, p, d.a.stream, 2)
	require.NoError(t, finishes(t, d.a.Session.Close))
	require.ErrorIs(t, y.Confirm(within(t, testgpu.Soon)), context.DeadlineExceeded)
	release()
	y.has(t, 2)
	x.has(t, 1)
	_, err := c.Next(t.Context(), d.b.stream)
	require.ErrorIs(t, err, io.EOF)
	d.b.runs(t)
	d.a.runs(t)
	require.NoError(t, y.Confirm(t.Context()))
	_, err = p.Next(t.Context(), d.a.stream)
	require.ErrorIs(t, err, cuda.ErrClosed)
	require.ErrorIs(t, p.Flush(t.Context()), cuda.ErrClosed)
	require.NoError(t, c.Close())
	require.NoError(t, p.Close())
	freed(t, d)
}

// Both ends close at the same time, in the middle of a flow.
func TestRingBothClose(t *testing.T) {
	for i := range 20 {
		d := newDuo(t)
		p, c := d.ring(t, 3, 8)
		var all sync.WaitGroup
		over := func(err error) bool {
			return errors.Is(err, cuda.ErrClosed) || errors.Is(err, ErrLeft) || errors.Is(err, io.EOF)
		}
		a, b := d.a.newStream(t), d.b.newStream(t)
		all.Go(func() {
			for {
				slot, err := p.Next(t.Context(), a)
				if err == nil {
					err = slot.Send(a)
				}
				if err != nil {
					if !over(err) {
						t.Error(err)
					}
					return
				}
			}
		})
		all.Go(func() {
			for {
				batch, err := c.Next(t.Context(), b)
				if err == nil {
					err = batch.Release(b)
				}
				if err == nil {
					err = batch.Confirm(t.Context())
				}
				if err != nil {
					if !over(err) {
						t.Error(err)
					}
					return
				}
			}
		})
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		one, other := testgpu.Go(p.Close), testgpu.Go(c.Close)
		require.NoError(t, testgpu.Receive(t, one))
		require.NoError(t, testgpu.Receive(t, other))
		if i%2 == 0 {
			one, other = testgpu.Go(d.a.Session.Close), testgpu.Go(d.b.Session.Close)
			require.NoError(t, testgpu.Receive(t, one))
			require.NoError(t, testgpu.Receive(t, other))
		}
		ended := testgpu.Go(func() error { all.Wait(); return nil })
		require.NoError(t, testgpu.Receive(t, ended))
		d.a.runs(t, a)
		d.b.runs(t, b)
		freed(t, d)
	}
}

// Rings in both directions are freed when both have closed rings and session at once.
func TestRingsBothWaysClosedWithTheSessions(t *testing.T) {
	for range 5 {
		d := newDuo(t)
		p, c := newTestRing(t, d.a, d.b, "there", 2, 4)
		q, e := newTestRing(t, d.b, d.a, "back", 2, 4)
		for _, f := range []func() error{p.Close, q.Close, c.Close, e.Close, d.a.Session.Close, d.b.Session.Close} {
			require.NoError(t, finishes(t, f))
		}
		freed(t, d)
	}
}
