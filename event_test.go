package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

var ctxBackground = context.Background()

func TestEventRules(t *testing.T) {
	rule(t, "14 interprocess with timing is refused with the reason", 1, func(t *testing.T, b *backend) {
		e := cuda.NewEvent(&cuda.EventOptions{Timing: true, Interprocess: true})
		s := newStream(t, b.dev(), nil)
		_, err := e.Query()
		_, noHandle := e.IPCHandle() // which opens no device for it
		for _, err := range []error{err, noHandle, e.Record(s), e.Wait(s), e.Synchronize()} {
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "interprocess event cannot have timing")
		}
		require.NoError(t, e.Close())
	})

	rule(t, "14 a blocking event waits like any other", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		e := newEvent(t, &cuda.EventOptions{Blocking: true})
		release := hold(t, s)
		require.NoError(t, e.Record(s))
		done := make(chan error, 1)
		go func() { done <- e.Synchronize() }()
		select {
		case <-done:
			t.Fatal("returned while the stream was busy")
		case <-time.After(soon):
		}
		release()
		require.NoError(t, <-done)
	})

	rule(t, "15 an event is made at its first record", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, nil)
		require.Zero(t, e.Handle())
		require.Nil(t, e.Device())
		require.Equal(t, "cuda.Event(uninitialized)", e.String())
		s := newStream(t, b.dev(), nil)
		require.NoError(t, e.Record(s))
		require.NotZero(t, e.Handle())
		require.Same(t, b.dev(), e.Device())
		require.Equal(t, fmt.Sprintf("cuda.Event(device 0, %#x)", uintptr(e.Handle())), e.String())

		var zero cuda.Event
		require.NoError(t, zero.Record(s))
		require.NoError(t, zero.Synchronize())
		require.NoError(t, zero.Close())
	})

	rule(t, "16 an event that was never recorded is done", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, timed())
		require.True(t, query(t, e))
		require.NoError(t, e.Wait(newStream(t, b.dev(), nil)))
		require.NoError(t, e.Synchronize())
		require.NoError(t, e.SynchronizeContext(t.Context()))
		require.NoError(t, <-e.Done())
		_, err := e.ElapsedTime(e)
		require.ErrorIs(t, err, cuda.ErrNotRecorded)
	})

	rule(t, "17 only streams of the event's device record it", 2, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		err := e.Record(other)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
		require.ErrorContains(t, err, "device 0")
		require.ErrorContains(t, err, "device 1")
		require.NoError(t, e.Wait(other))
		gone := cuda.NewEvent(nil)
		require.NoError(t, gone.Record(s))
		require.NoError(t, gone.Close())
		require.ErrorIs(t, gone.Record(other), cuda.ErrClosed)
		bound := newEvent(t, &cuda.EventOptions{Device: b.devices[1]})
		require.ErrorIs(t, bound.Record(s), cuda.ErrDeviceMismatch)
		require.NoError(t, bound.Record(other))
	})

	rule(t, "17 recording again moves the event, earlier waits stay", 1, func(t *testing.T, b *backend) {
		first, second, third := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(first))
		require.NoError(t, e.Wait(second)) // refers to this record
		release := hold(t, first)
		require.NoError(t, e.Record(first))
		require.NoError(t, e.Wait(third)) // refers to the later one
		require.False(t, query(t, e))
		require.NoError(t, second.Synchronize())
		time.Sleep(soon)
		require.False(t, query(t, third))
		release()
		require.NoError(t, third.Synchronize())
		require.True(t, query(t, e))
	})

	rule(t, "18 a wait never blocks the host and orders data", 1, func(t *testing.T, b *backend) {
		producer, consumer := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		buf, out := alloc[uint8](t, b.dev(), 1<<20), allocHost[uint8](t, b.dev(), 1<<20)
		require.NoError(t, cuda.Fill(producer, buf, 1))
		require.NoError(t, producer.Synchronize())
		release := hold(t, producer)
		require.NoError(t, cuda.Fill(producer, buf, 2))
		ready, err := producer.RecordEvent(nil)
		require.NoError(t, err)
		require.NoError(t, consumer.WaitEvent(ready))
		require.NoError(t, cuda.Copy(consumer, out, buf))
		require.NoError(t, ready.Close(), "an event can be closed once the wait is enqueued")
		time.Sleep(soon)
		release()
		require.NoError(t, consumer.Synchronize())
		require.Equal(t, bytes.Repeat([]byte{2}, 1<<20), out.Slice())
	})

	rule(t, "19 any goroutine queries and waits", 2, func(t *testing.T, b *backend) {
		s := newStream(t, b.devices[1], nil)
		e := newEvent(t, nil)
		release := hold(t, s)
		require.NoError(t, e.Record(s))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if done, err := e.Query(); err != nil || done {
					t.Errorf("query: %v, %v", done, err)
				}
				if err := e.Synchronize(); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(soon)
		release()
		wg.Wait()
	})

	rule(t, "20 elapsed time checks timing, then records, then completion", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		start, end, untimed := newEvent(t, timed()), newEvent(t, timed()), newEvent(t, nil)
		require.NoError(t, untimed.Record(s))
		_, err := untimed.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrNotTimed)
		require.ErrorContains(t, err, "start event")
		_, err = start.ElapsedTime(untimed)
		require.ErrorIs(t, err, cuda.ErrNotTimed)
		require.ErrorContains(t, err, "end event")
		require.NoError(t, start.Record(s))
		_, err = start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrNotRecorded)
		release := hold(t, s)
		require.NoError(t, end.Record(s))
		_, err = start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrNotCompleted)
		require.ErrorIs(t, err, driver.ErrorNotReady)
		release()
		require.NoError(t, end.Synchronize())
		d, err := start.ElapsedTime(end)
		require.NoError(t, err)
		require.Positive(t, d)
	})

	rule(t, "20 elapsed time is the time", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		start, end := newEvent(t, timed()), newEvent(t, timed())
		began := time.Now()
		require.NoError(t, start.Record(s))
		require.NoError(t, start.Synchronize())
		release := hold(t, s)
		held := time.Now()
		require.NoError(t, end.Record(s))
		time.Sleep(soon)
		atLeast := time.Since(held)
		release()
		require.NoError(t, end.Synchronize())
		atMost := time.Since(began)
		d, err := start.ElapsedTime(end)
		require.NoError(t, err)
		require.GreaterOrEqual(t, d, atLeast-time.Millisecond)
		require.LessOrEqual(t, d, atMost+time.Millisecond)
	})

	rule(t, "20 elapsed time between devices is refused", 2, func(t *testing.T, b *backend) {
		start, end := newEvent(t, timed()), newEvent(t, timed())
		require.NoError(t, start.Record(newStream(t, b.devices[0], nil)))
		require.NoError(t, end.Record(newStream(t, b.devices[1], nil)))
		_, err := start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})

	rule(t, "23 an event recorded in a capture says so outside", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		api := b.drv.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.Equal(t, driver.Success, api.GraphDestroy(g))
		_, queryErr := e.Query()
		for _, err := range []error{queryErr, e.Synchronize(), e.Wait(s), e.SynchronizeContext(t.Context()), <-e.Done()} {
			require.ErrorIs(t, err, cuda.ErrCaptured)
		}
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize(), "recorded outside, it is an ordinary event again")
	})

	rule(t, "23 asking for an event while it is captured says so", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		api := b.drv.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		_, err := e.Query()
		require.ErrorIs(t, err, cuda.ErrCaptured)
		_, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.ErrorStreamCaptureInvalidated, r, "and ends the capture")
	})

	rule(t, "22 an external event is ordinary outside a capture", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		e := newEvent(t, &cuda.EventOptions{External: true})
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Wait(s))
		require.NoError(t, e.Synchronize())
		api := b.drv.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		require.NoError(t, e.Record(s))
		require.True(t, query(t, e), "recorded as a node, it does not belong to the capture")
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.Equal(t, driver.Success, api.GraphDestroy(g))
	})

	rule(t, "24 a closed event says so, and closing twice is nil", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		for _, recorded := range []bool{false, true} {
			e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
			if recorded {
				require.NoError(t, e.Record(s))
			}
			require.NoError(t, e.Close())
			require.NoError(t, e.Close())
			require.Equal(t, "cuda.Event(closed)", e.String())
			_, queryErr := e.Query()
			_, handleErr := e.IPCHandle()
			for _, err := range []error{queryErr, handleErr, e.Record(s), e.Wait(s), e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
				require.ErrorIs(t, err, cuda.ErrClosed)
			}
			ordinary := cuda.NewEvent(nil)
			require.NoError(t, ordinary.Close())
			_, err := ordinary.IPCHandle()
			require.ErrorIs(t, err, cuda.ErrClosed)
			closed := cuda.NewEvent(timed())
			require.NoError(t, closed.Close())
			_, err = closed.ElapsedTime(closed)
			require.ErrorIs(t, err, cuda.ErrClosed)
		}
	})

	rule(t, "24 closing while another goroutine waits is safe", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		release := hold(t, s)
		e := cuda.NewEvent(nil)
		require.NoError(t, e.Record(s))
		waits := []<-chan error{e.Done()}
		for _, wait := range []func() error{e.Synchronize, func() error { return e.SynchronizeContext(ctxBackground) }} {
			done := make(chan error, 1)
			waits = append(waits, done)
			go func() { done <- wait() }()
		}
		time.Sleep(soon)
		require.NoError(t, e.Close())
		for _, done := range waits {
			require.ErrorIs(t, <-done, cuda.ErrClosed)
		}
		release()
	})
}

func TestSynchronizeContextIsCancelled(t *testing.T) {
	rule(t, "06 waiting with a context ends with it", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		release := hold(t, s)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		require.ErrorIs(t, e.SynchronizeContext(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, s.SynchronizeContext(ctx), context.DeadlineExceeded)
		done := e.Done()
		release()
		require.NoError(t, e.SynchronizeContext(t.Context()))
		require.NoError(t, s.SynchronizeContext(t.Context()))
		require.NoError(t, <-done)
	})
}

func TestNilEventIsAnError(t *testing.T) {
	var e *cuda.Event
	_, queryErr := e.Query()
	_, elapsedErr := cuda.NewEvent(timed()).ElapsedTime(nil)
	_, handleErr := e.IPCHandle()
	for _, err := range []error{queryErr, elapsedErr, handleErr, e.Record(nil), e.Wait(nil), e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}
	require.NoError(t, e.Close())
	require.Zero(t, e.Handle())
	require.Nil(t, e.Device())
	require.Equal(t, "cuda.Event(nil)", e.String())
	require.ErrorIs(t, cuda.NewEvent(nil).Record(nil), cuda.ErrInvalid)
	var typed *cuda.Error
	require.True(t, errors.As(e.Synchronize(), &typed))
	require.Equal(t, "event synchronize", typed.Op)
}
