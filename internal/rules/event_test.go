package rules_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestEventRules(t *testing.T) {
	testgpu.Rule(t, "14 interprocess with timing is refused with the reason", 1, func(t *testing.T, b *testgpu.Backend) {
		e := cuda.NewEvent(&cuda.EventOptions{Timing: true, Interprocess: true})
		s := testgpu.NewStream(t, b.Device(), nil)
		_, err := e.Query()
		_, noHandle := e.IPCHandle() // which opens no device for it
		for _, err := range []error{err, noHandle, e.Record(s), e.Wait(s), e.Synchronize()} {
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "interprocess event cannot have timing")
		}
		require.NoError(t, e.Close())
	})

	testgpu.Rule(t, "14 a blocking event waits like any other", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, &cuda.EventOptions{Blocking: true})
		release := testgpu.Hold(t, s)
		require.NoError(t, e.Record(s))
		done := make(chan error, 1)
		go func() { done <- e.Synchronize() }()
		select {
		case <-done:
			t.Fatal("returned while the stream was busy")
		case <-time.After(testgpu.Soon):
		}
		release()
		require.NoError(t, <-done)
	})

	testgpu.Rule(t, "15 an event is made at its first record", 1, func(t *testing.T, b *testgpu.Backend) {
		e := testgpu.NewEvent(t, nil)
		require.Zero(t, e.Handle())
		require.Nil(t, e.Device())
		require.Equal(t, "cuda.Event(uninitialized)", e.String())
		s := testgpu.NewStream(t, b.Device(), nil)
		require.NoError(t, e.Record(s))
		require.NotZero(t, e.Handle())
		require.Same(t, b.Device(), e.Device())
		require.Equal(t, fmt.Sprintf("cuda.Event(device 0, %#x)", uintptr(e.Handle())), e.String())

		var zero cuda.Event
		require.NoError(t, zero.Record(s))
		require.NoError(t, zero.Synchronize())
		require.NoError(t, zero.Close())
	})

	testgpu.Rule(t, "16 an event that was never recorded is done", 1, func(t *testing.T, b *testgpu.Backend) {
		e := testgpu.NewEvent(t, testgpu.Timed())
		require.True(t, testgpu.Query(t, e))
		require.NoError(t, e.Wait(testgpu.NewStream(t, b.Device(), nil)))
		require.NoError(t, e.Synchronize())
		require.NoError(t, e.SynchronizeContext(t.Context()))
		require.NoError(t, <-e.Done())
		_, err := e.ElapsedTime(e)
		require.ErrorIs(t, err, cuda.ErrNotRecorded)
	})

	testgpu.Rule(t, "17 only streams of the event's device record it", 2, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		e := testgpu.NewEvent(t, nil)
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
		bound := testgpu.NewEvent(t, &cuda.EventOptions{Device: b.Devices[1]})
		require.ErrorIs(t, bound.Record(s), cuda.ErrDeviceMismatch)
		require.NoError(t, bound.Record(other))
	})

	testgpu.Rule(t, "17 recording again moves the event, earlier waits stay", 1, func(t *testing.T, b *testgpu.Backend) {
		first, second, third := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(first))
		require.NoError(t, e.Wait(second)) // refers to this record
		release := testgpu.Hold(t, first)
		require.NoError(t, e.Record(first))
		require.NoError(t, e.Wait(third)) // refers to the later one
		require.False(t, testgpu.Query(t, e))
		require.NoError(t, second.Synchronize())
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, third))
		release()
		require.NoError(t, third.Synchronize())
		require.True(t, testgpu.Query(t, e))
	})

	testgpu.Rule(t, "18 a wait never blocks the host and orders data", 1, func(t *testing.T, b *testgpu.Backend) {
		producer, consumer := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		buf, out := testgpu.Alloc[uint8](t, b.Device(), 1<<20), testgpu.AllocHost[uint8](t, b.Device(), 1<<20)
		require.NoError(t, cuda.Fill(producer, buf, 1))
		require.NoError(t, producer.Synchronize())
		release := testgpu.Hold(t, producer)
		require.NoError(t, cuda.Fill(producer, buf, 2))
		ready, err := producer.RecordEvent(nil)
		require.NoError(t, err)
		require.NoError(t, consumer.WaitEvent(ready))
		require.NoError(t, cuda.Copy(consumer, out, buf))
		require.NoError(t, ready.Close(), "an event can be closed once the wait is enqueued")
		time.Sleep(testgpu.Soon)
		release()
		require.NoError(t, consumer.Synchronize())
		require.Equal(t, bytes.Repeat([]byte{2}, 1<<20), out.Slice())
	})

	testgpu.Rule(t, "19 any goroutine queries and waits", 2, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Devices[1], nil)
		e := testgpu.NewEvent(t, nil)
		release := testgpu.Hold(t, s)
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
		time.Sleep(testgpu.Soon)
		release()
		wg.Wait()
	})

	testgpu.Rule(t, "20 elapsed time checks timing, then records, then completion", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		start, end, untimed := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, nil)
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
		release := testgpu.Hold(t, s)
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

	testgpu.Rule(t, "20 elapsed time is the time", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
		began := time.Now()
		require.NoError(t, start.Record(s))
		require.NoError(t, start.Synchronize())
		release := testgpu.Hold(t, s)
		held := time.Now()
		require.NoError(t, end.Record(s))
		time.Sleep(testgpu.Soon)
		atLeast := time.Since(held)
		release()
		require.NoError(t, end.Synchronize())
		atMost := time.Since(began)
		d, err := start.ElapsedTime(end)
		require.NoError(t, err)
		require.GreaterOrEqual(t, d, atLeast-time.Millisecond)
		require.LessOrEqual(t, d, atMost+time.Millisecond)
	})

	testgpu.Rule(t, "20 elapsed time between devices is refused", 2, func(t *testing.T, b *testgpu.Backend) {
		start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
		require.NoError(t, start.Record(testgpu.NewStream(t, b.Devices[0], nil)))
		require.NoError(t, end.Record(testgpu.NewStream(t, b.Devices[1], nil)))
		_, err := start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})

	testgpu.Rule(t, "23 an event recorded in a capture says so outside", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		api := b.Driver.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		e := testgpu.NewEvent(t, nil)
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

	testgpu.Rule(t, "23 asking for an event while it is captured says so", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		api := b.Driver.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		_, err := e.Query()
		require.ErrorIs(t, err, cuda.ErrCaptured)
		_, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.ErrorStreamCaptureInvalidated, r, "and ends the capture")
	})

	testgpu.Rule(t, "22 an external event is ordinary outside a capture", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, &cuda.EventOptions{External: true})
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Wait(s))
		require.NoError(t, e.Synchronize())
		api := b.Driver.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		require.NoError(t, e.Record(s))
		require.True(t, testgpu.Query(t, e), "recorded as a node, it does not belong to the capture")
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.Equal(t, driver.Success, api.GraphDestroy(g))
	})

	testgpu.Rule(t, "24 a closed event says so, and closing twice is nil", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
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
			closed := cuda.NewEvent(testgpu.Timed())
			require.NoError(t, closed.Close())
			_, err = closed.ElapsedTime(closed)
			require.ErrorIs(t, err, cuda.ErrClosed)
		}
	})

	testgpu.Rule(t, "24 closing while another goroutine waits is safe", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, s)
		e := cuda.NewEvent(nil)
		require.NoError(t, e.Record(s))
		waits := []<-chan error{e.Done()}
		for _, wait := range []func() error{e.Synchronize, func() error { return e.SynchronizeContext(context.Background()) }} {
			done := make(chan error, 1)
			waits = append(waits, done)
			go func() { done <- wait() }()
		}
		time.Sleep(testgpu.Soon)
		require.NoError(t, e.Close())
		for _, done := range waits {
			require.ErrorIs(t, <-done, cuda.ErrClosed)
		}
		release()
	})
}

func TestSynchronizeContextIsCancelled(t *testing.T) {
	testgpu.Rule(t, "06 waiting with a context ends with it", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, s)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithTimeout(t.Context(), testgpu.Soon)
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
