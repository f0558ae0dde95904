package ipc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// waiting counts the rings that wait for a consumer at e.
func (e *end) waiting() int {
	e.rings.mu.Lock()
	defer e.rings.mu.Unlock()
	return len(e.rings.setups)
}

// wants waits until a consumer at e waits for a producer.
func (e *end) wants(t testing.TB, name string) {
	t.Helper()
	testgpu.WaitUntil(t, func() bool {
		e.rings.mu.Lock()
		defer e.rings.mu.Unlock()
		return e.rings.wanted[name] != nil
	})
}

// produces begins to make a producer.
func (e *end) produces(ctx context.Context, name string) (made <-chan error, p **Producer[uint32]) {
	p = new(*Producer[uint32])
	made = testgpu.Go(func() (err error) {
		*p, err = NewProducer[uint32](ctx, e.Session, e.dev, name, 2, 8)
		return err
	})
	return made, p
}

// A consumer that gives up when it has just received a ring leaves it to the next one.
func TestRingSetupIsLeftToTheNextConsumer(t *testing.T) {
	d := newDuo(t)
	r := newRing(d.b.Session, "r", 0)
	_, found, ok := d.b.rings.consume(r)
	require.False(t, found)
	require.True(t, ok)
	made, p := d.a.produces(context.Background(), "r")
	testgpu.WaitUntil(t, func() bool { return len(r.heard) == 1 })
	r.abandon()
	c, err := NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
	require.NoError(t, err)
	require.NoError(t, testgpu.Receive(t, made))
	send(t, *p, d.a.stream, 1)
	take(t, c, d.b.stream).has(t, 1)
	require.NoError(t, c.Close())
	require.NoError(t, (*p).Close())
	freed(t, d)
}

// Both give up at the same time: then there is nothing to be left.
func TestRingSetupThatBothGiveUp(t *testing.T) {
	d := newDuo(t)
	r := newRing(d.b.Session, "r", 0)
	_, found, ok := d.b.rings.consume(r)
	require.False(t, found)
	require.True(t, ok)
	ctx, cancel := context.WithCancel(t.Context())
	made, _ := d.a.produces(ctx, "r")
	testgpu.WaitUntil(t, func() bool { return len(r.heard) == 1 })
	cancel()
	require.ErrorIs(t, testgpu.Receive(t, made), context.Canceled)
	testgpu.WaitUntil(t, func() bool { return len(r.heard) == 2 })
	r.abandon()
	require.Zero(t, d.b.waiting())
	again(t, d)
}

// What is received of a ring while the session is being closed is forgotten, with its file.
func TestRingSetupHeardWhileClosing(t *testing.T) {
	d := newDuo(t)
	setup := func() ringMessage {
		f, err := newSharedFile(1)
		require.NoError(t, err)
		return ringMessage{Ring: 1, Producer: true, Name: "r", Setup: &ringSetup{}, file: f}
	}
	x := &d.b.rings
	early, late := setup(), setup()
	r := newRing(d.b.Session, "r", 0)
	_, _, ok := x.consume(r)
	require.True(t, ok)
	x.hear(d.b.Session, early)
	require.NoError(t, x.close())
	r.abandon()
	x.hear(d.b.Session, late)
	require.Zero(t, d.b.waiting())
	for _, m := range []ringMessage{early, late} {
		require.ErrorIs(t, m.file.Close(), os.ErrClosed)
	}
}

// A consumer whose context is over takes a ring that is there, or leaves it to the next.
func TestRingSetupTakenWithoutTime(t *testing.T) {
	d := newDuo(t)
	made, p := d.a.produces(context.Background(), "r")
	testgpu.WaitUntil(t, func() bool { return d.b.waiting() == 1 })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := NewConsumer[uint32](over, d.b.Session, d.b.drv, "r")
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
		c, err = NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
		require.NoError(t, err)
	}
	require.NoError(t, testgpu.Receive(t, made))
	require.NoError(t, c.Close())
	require.NoError(t, (*p).Close())
	freed(t, d)
}

// Consumers that give up at any moment do not lose the ring that the producer offers.
func TestRingSetupAndConsumersThatGiveUp(t *testing.T) {
	for i := range 20 {
		d := newDuo(t)
		made, p := d.a.produces(context.Background(), "r")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
		c, err := NewConsumer[uint32](ctx, d.b.Session, d.b.drv, "r")
		cancel()
		if err != nil {
			require.ErrorIs(t, err, ctx.Err())
			c, err = NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
			require.NoError(t, err)
		}
		require.NoError(t, testgpu.Receive(t, made))
		require.NoError(t, c.Close())
		require.NoError(t, (*p).Close())
		freed(t, d)
	}
}

// A producer may try again as often as it likes against a peer that does not care.
func TestRingSetupTriedAgain(t *testing.T) {
	d := newDuo(t)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := NewProducer[uint32](ctx, d.a.Session, d.a.dev, "r", 2, 8)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	testgpu.WaitUntil(t, func() bool { return d.b.waiting() == 0 })
	freed(t, d)
	require.NoError(t, d.a.Err())
	require.NoError(t, d.b.Err())
	p, c := d.ring(t, 2, 8)
	send(t, p, d.a.stream, 1)
	take(t, c, d.b.stream).has(t, 1)
}

// A consumer that fails after it has agreed notifies the producer.
func TestRingSetupFailsAtTheConsumerLate(t *testing.T) {
	d := newDuo(t, nil, func(api *driver.API) {
		noCounters(api)
		api.IPCOpenEventHandle = func(driver.IPCEventHandle) (driver.Event, driver.Result) {
			return 0, driver.ErrorMapFailed
		}
	})
	made, p := d.a.produces(context.Background(), "r")
	_, err := NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	err = testgpu.Receive(t, made)
	if err == nil { // it was done before the consumer
		testgpu.Receive(t, (*p).ring.halt.Done())
		_, err = (*p).Next(t.Context(), d.a.stream)
		require.NoError(t, (*p).Close())
	}
	require.ErrorIs(t, err, ErrLeft)
	freed(t, d)
}

// The peer refuses the ring that is one too many, and takes others when there is room.
func TestRingSetupTooManyWait(t *testing.T) {
	d := newDuo(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var made []<-chan error
	for i := range maxSetups {
		m, _ := d.a.produces(ctx, fmt.Sprint("ring ", i))
		made = append(made, m)
	}
	testgpu.WaitUntil(t, func() bool { return d.b.waiting() == maxSetups })
	_, err := NewProducer[uint32](within(t, 5*time.Second), d.a.Session, d.a.dev, "one more", 2, 8)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "64 other rings wait for a consumer already")

	c, err := NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "ring 0")
	require.NoError(t, err)
	closes(t, c)
	require.NoError(t, testgpu.Receive(t, made[0]))
	m, _ := d.a.produces(ctx, "one more")
	testgpu.WaitUntil(t, func() bool { return d.b.waiting() == maxSetups })
	cancel()
	for _, m := range append(made[1:], m) {
		require.ErrorIs(t, testgpu.Receive(t, m), context.Canceled)
	}
	testgpu.WaitUntil(t, func() bool { return d.b.waiting() == 0 })
}

// Junk for rings that are being taken or given up blocks neither a consumer nor its
// session.
func TestRingSetupAmongJunk(t *testing.T) {
	const junk = 1000 // its first number: a refusal of it is not to be one of a true ring
	for range 5 {
		d := newDuo(t)
		for n := range uint64(20) { // whose memory is not offered
			payload, err := json.Marshal(ringMessage{Ring: junk + n, Producer: true, Name: "r", Setup: &ringSetup{Slots: 2, Length: 4, Element: 4}})
			require.NoError(t, err)
			require.NoError(t, d.a.sendTo(ringsChannel, payload, nil))
		}
		ctx, cancel := context.WithCancel(t.Context())
		flooded := testgpu.Go(func() error {
			for n := 0; n < 1000 && ctx.Err() == nil; n++ {
				if d.a.sendTo(ringsChannel, fmt.Appendf(nil, `{"ring":%d,"producer":true}`, junk+n%9), nil) != nil {
					time.Sleep(time.Millisecond) // too much is on its way
				}
			}
			return nil
		})
		err := finishes(t, func() error {
			_, err := NewConsumer[uint32](within(t, 2*testgpu.Soon), d.b.Session, d.b.drv, "r")
			return err
		})
		require.Error(t, err)
		cancel()
		require.NoError(t, testgpu.Receive(t, flooded))
		require.NoError(t, d.b.Err())
		p, c := newTestRing(t, d.a, d.b, "another", 2, 4)
		send(t, p, d.a.stream, 1)
		take(t, c, d.b.stream).has(t, 1)
	}
}
