package ipc

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// While the consumer lives and works on a batch, nothing lets the producer's stream
// overwrite it, however the session ends.
func TestRingLivingConsumerKeepsItsBatch(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, d *duo, p *Producer[uint32]) (over <-chan error)
	}{
		{"producer and its session closed", func(t *testing.T, d *duo, p *Producer[uint32]) <-chan error {
			require.NoError(t, p.Close())
			return testgpu.Go(d.a.Session.Close)
		}},
		{"producer closed, its session shut down", func(t *testing.T, d *duo, p *Producer[uint32]) <-chan error {
			require.NoError(t, p.Close())
			return testgpu.Go(func() error { return d.a.Session.Shutdown(context.Background()) })
		}},
		{"producer's session shut down", func(t *testing.T, d *duo, _ *Producer[uint32]) <-chan error {
			return testgpu.Go(func() error { return d.a.Session.Shutdown(context.Background()) })
		}},
		{"consumer's session closed", func(t *testing.T, d *duo, _ *Producer[uint32]) <-chan error {
			return testgpu.Go(d.b.Session.Close)
		}},
		{"connection broken", func(t *testing.T, d *duo, _ *Producer[uint32]) <-chan error {
			d.a.abandon()
			return testgpu.Go(func() error { return nil })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 1, 8)
			send(t, p, d.a.stream, 1)
			batch, err := c.Next(within(t, 5*time.Second), d.b.stream)
			require.NoError(t, err)
			require.NoError(t, d.b.stream.Synchronize())
			host, err := cuda.AllocHost[uint32](c.Device(), 8, nil)
			require.NoError(t, err)
			closes(t, host)
			release := d.hold(t, d.b.stream)
			require.NoError(t, cuda.Copy(d.b.stream, host, batch.Buffer))
			require.NoError(t, batch.Release(d.b.stream))
			send(t, p, d.a.stream, 2)

			over := test.end(t, d, p)
			// A consumer says goodbye only when its device is done.
			testgpu.WaitUntil(t, func() bool { return isClosed(d.b.Session.Done()) || c.ring.isClosed() })
			for range 5 {
				time.Sleep(testgpu.Soon / 2)
				ran, err := d.a.stream.Query()
				require.NoError(t, err)
				require.False(t, ran, "the producer's stream went on")
			}
			release()
			d.b.runs(t)
			require.NoError(t, batch.Confirm(within(t, 5*time.Second)))
			require.Equal(t, []uint32{1, 1, 1, 1, 1, 1, 1, 1}, host.Slice())

			d.a.runs(t)
			require.NoError(t, finishes(t, c.Close))
			require.NoError(t, p.Close())
			require.NoError(t, testgpu.Receive(t, over))
			if test.name == "connection broken" { // only its death says that it is done
				d.kill(d.b)
			}
			freed(t, d)
		})
	}
}

// Close ends a Next that waits, with the ring or with the session, at either end.
func TestRingCloseEndsNext(t *testing.T) {
	for _, counted := range []bool{true, false} {
		for _, producer := range []bool{true, false} {
			for _, session := range []bool{false, true} {
				t.Run(fmt.Sprintf("counters %v, producer %v, session %v", counted, producer, session), func(t *testing.T) {
					change := noCounters
					if counted {
						change = nil
					}
					d := newDuo(t, change)
					p, c := d.ring(t, 1, 8)
					e, end := d.b, c.Close
					var next <-chan error
					if producer {
						e, end = d.a, p.Close
						send(t, p, d.a.stream, 1)
						if counted { // the host may be ahead by one round
							send(t, p, d.a.stream, 2)
						}
						next = testgpu.Go(func() error {
							_, err := p.Next(context.Background(), d.a.stream)
							return err
						})
					} else {
						if counted {
							take(t, c, d.b.stream)
						}
						next = testgpu.Go(func() error {
							_, err := c.Next(context.Background(), d.b.stream)
							return err
						})
					}
					testgpu.NotReady(t, next)
					if session {
						end = e.Session.Close
					}
					require.NoError(t, finishes(t, end))
					require.ErrorIs(t, testgpu.Receive(t, next), cuda.ErrClosed)
					require.NoError(t, finishes(t, c.Close))
					require.NoError(t, p.Close())
					d.a.runs(t)
					d.b.runs(t)
					freed(t, d)
				})
			}
		}
	}
}

// Closing the sessions closes their rings, in both directions, which leaves nothing.
func TestRingsClosedByTheirSessions(t *testing.T) {
	for _, change := range []func(*driver.API){nil, noCounters} {
		running := len(goroutines())
		d := newDuo(t, change, change)
		for i := range 3 {
			p, c := newTestRing(t, d.a, d.b, fmt.Sprint("there ", i), 2, 8)
			send(t, p, d.a.stream, 1)
			take(t, c, d.b.stream).has(t, 1)
			_, err := p.Next(t.Context(), d.a.stream) // never sent
			require.NoError(t, err)
			newTestRing(t, d.b, d.a, fmt.Sprint("back ", i), 2, 8)
		}
		require.NoError(t, finishes(t, d.a.Session.Close))
		require.NoError(t, finishes(t, d.b.Session.Close))
		testgpu.WaitUntil(t, func() bool { return len(goroutines()) <= running })
		for _, e := range []*end{d.a, d.b} {
			testgpu.WaitUntil(t, func() bool {
				s := e.drv.Stats()
				return s.Streams == 1 && s.Buffers == 0
			})
		}
	}
}

// Flush waits for all that was sent, also behind a slot that was not, and for no more.
func TestRingFlushBehindAGap(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 3, 8)
	first, err := p.Next(t.Context(), d.a.stream)
	require.NoError(t, err)
	send(t, p, d.a.stream, 1)
	require.ErrorIs(t, p.Flush(within(t, testgpu.Soon)), context.DeadlineExceeded)

	s := d.b.streams(t, 2)
	zero := take(t, c, s[0]) // waits
	one := take(t, c, s[1])
	one.has(t, 1)
	require.NoError(t, p.Flush(within(t, 5*time.Second)))

	require.NoError(t, cuda.Fill(d.a.stream, first.Buffer, 0))
	require.NoError(t, first.Send(d.a.stream))
	zero.has(t, 0)
	require.NoError(t, p.Flush(within(t, 5*time.Second)))
}

// Flushes that time out leave one wait on the device for all of them.
func TestRingFlushesWaitOnce(t *testing.T) {
	var waits atomic.Int32
	d := newDuo(t, func(api *driver.API) {
		wait := api.StreamWaitValue32
		api.StreamWaitValue32 = func(s driver.Stream, p driver.DevicePtr, value, flags uint32) driver.Result {
			waits.Add(1)
			return wait(s, p, value, flags)
		}
	})
	p, c := d.ring(t, 8, 8)
	send(t, p, d.a.stream, 1)
	before := waits.Load()
	for range 100 {
		require.ErrorIs(t, p.Flush(within(t, time.Millisecond)), context.DeadlineExceeded)
	}
	require.LessOrEqual(t, waits.Load()-before, int32(1))
	take(t, c, d.b.stream).has(t, 1)
	require.NoError(t, p.Flush(within(t, 5*time.Second)))
}
