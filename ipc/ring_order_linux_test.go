package ipc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The device keeps the order, whatever the hosts do.
func TestRingOrder(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 8)
	a, b := d.a.newStream(t), d.b.newStream(t)

	release := d.hold(t, a)
	send(t, p, a, 7)
	x := take(t, c, b)
	confirmed := testgpu.Go(func() error { return x.Confirm(context.Background()) })
	testgpu.NotReady(t, confirmed)
	done, err := x.there.Query()
	require.NoError(t, err)
	require.False(t, done, "the consumer's stream has passed the wait")
	flushed := testgpu.Go(func() error { return p.Flush(context.Background()) })
	testgpu.NotReady(t, flushed)
	release()
	require.NoError(t, testgpu.Receive(t, confirmed))
	x.has(t, 7)
	require.NoError(t, testgpu.Receive(t, flushed))

	// The other way: the producer comes round to a slot that is in use.
	send(t, p, a, 8)
	y := take(t, c, b)
	y.has(t, 8)
	batch, err := c.Next(t.Context(), b) // of the first slot again
	require.NoError(t, err)
	send(t, p, a, 9)
	require.NoError(t, batch.Confirm(t.Context()))
	release = d.hold(t, b)
	host, err := cuda.AllocHost[uint32](d.b.dev, 8, nil)
	require.NoError(t, err)
	defer host.Close()
	require.NoError(t, cuda.Copy(b, host, batch.Buffer))
	require.NoError(t, batch.Release(b))
	send(t, p, a, 10)
	send(t, p, a, 11) // over 9, if nothing kept it
	time.Sleep(testgpu.Soon)
	done, err = a.Query()
	require.NoError(t, err)
	require.False(t, done, "the producer's stream has passed the wait")
	release()
	require.NoError(t, b.Synchronize())
	for _, v := range host.Slice() {
		require.Equal(t, uint32(9), v)
	}
	take(t, c, b).has(t, 10)
	take(t, c, b).has(t, 11)
	require.NoError(t, p.Flush(t.Context()))
}

// A batch that is released on a stream which waits for another comes after both.
func TestRingReleasedOnAnotherStream(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 1, 8)
	a, b, other := d.a.newStream(t), d.b.newStream(t), d.b.newStream(t)
	send(t, p, a, 1)
	batch, err := c.Next(t.Context(), b)
	require.NoError(t, err)
	release := d.hold(t, b)
	e, err := b.RecordEvent(nil)
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, other.WaitEvent(e))
	require.NoError(t, batch.Release(other))
	send(t, p, a, 2)
	time.Sleep(testgpu.Soon)
	done, err := a.Query()
	require.NoError(t, err)
	require.False(t, done)
	release()
	require.NoError(t, a.Synchronize())
	take(t, c, b).has(t, 2)
}

// The hosts are ahead of the devices by all slots, and no more.
func TestRingHostsAreAhead(t *testing.T) {
	const slots = 3
	d := newDuo(t)
	p, c := d.ring(t, slots, 8)
	a, b := d.a.newStream(t), d.b.newStream(t)
	var batches []took
	for range slots { // nothing is sent yet
		batches = append(batches, take(t, c, b))
	}
	_, err := c.Next(within(t, testgpu.Soon), b)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for n := range uint32(slots) {
		send(t, p, a, n)
	}
	for n, x := range batches {
		x.has(t, uint32(n))
	}
	release := d.hold(t, b)
	batches = nil
	for range slots {
		batches = append(batches, take(t, c, b))
	}
	for n := range uint32(slots) {
		send(t, p, a, slots+n)
	}
	for n := range uint32(slots) { // waits on the device for what b has not released
		send(t, p, a, 2*slots+n)
	}
	_, err = p.Next(within(t, testgpu.Soon), a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	release()
	for n, x := range batches {
		x.has(t, uint32(slots+n))
	}
	for n := range uint32(slots) {
		take(t, c, b).has(t, 2*slots+n)
	}
	require.NoError(t, p.Flush(t.Context()))
}

// A ring goes on after calls that were cancelled.
func TestRingCancelled(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 1, 8)
	a, b := d.a.newStream(t), d.b.newStream(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	release := d.hold(t, a)
	send(t, p, a, 1)
	require.ErrorIs(t, p.Flush(within(t, testgpu.Soon)), context.DeadlineExceeded)
	require.ErrorIs(t, p.Flush(over), context.Canceled)
	x := take(t, c, b)
	require.ErrorIs(t, x.Confirm(within(t, testgpu.Soon)), context.DeadlineExceeded)
	require.ErrorIs(t, x.Confirm(over), context.Canceled)
	_, err := c.Next(within(t, testgpu.Soon), b)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	send(t, p, a, 2)
	_, err = p.Next(within(t, testgpu.Soon), a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "ring produce")

	// Another goroutine that has the turn can be waited for no longer than ctx says.
	first := testgpu.Go(func() error { _, err := p.Next(within(t, 10*testgpu.Soon), a); return err })
	testgpu.WaitUntil(t, func() bool { return len(p.ring.turn) == 1 })
	_, err = p.Next(within(t, testgpu.Soon), a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, testgpu.Receive(t, first), context.DeadlineExceeded)

	release()
	x.has(t, 1)
	take(t, c, b).has(t, 2)
	for n := range uint32(20) {
		send(t, p, a, n)
		take(t, c, b).has(t, n)
	}
	require.NoError(t, p.Flush(t.Context()))
}

// Each cancelled Flush leaves nothing behind that could hold up others.
func TestRingManyCancelledFlushes(t *testing.T) {
	d := newDuo(t)
	p, c := d.ring(t, 2, 8)
	release := d.hold(t, d.a.stream)
	send(t, p, d.a.stream, 1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 500 {
		require.ErrorIs(t, p.Flush(over), context.Canceled)
	}
	release()
	take(t, c, d.b.stream).has(t, 1)
	require.NoError(t, p.Flush(t.Context()))
}
