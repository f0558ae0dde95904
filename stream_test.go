package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

func TestStreamRules(t *testing.T) {
	rule(t, "01 work in a stream runs in order, streams are unordered", 1, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		buf, out := alloc[uint32](t, b.dev(), 1000), allocHost[uint32](t, b.dev(), 1000)
		release := hold(t, s)
		for v := range uint32(10) {
			require.NoError(t, cuda.Fill(s, buf, v))
		}
		require.NoError(t, cuda.Copy(s, out, buf))
		require.NoError(t, other.Synchronize(), "another stream does not wait")
		require.False(t, query(t, s))
		release()
		require.NoError(t, s.Synchronize())
		for _, v := range out.Slice() {
			require.Equal(t, uint32(9), v)
		}
	})

	rule(t, "02 the default stream is one, has handle 0 and is current", 1, func(t *testing.T, b *backend) {
		d := b.dev().DefaultStream()
		require.Zero(t, d.Handle())
		require.True(t, d.Equal(b.dev().DefaultStream()))
		require.True(t, d.Equal(b.dev().CurrentStream(t.Context())))
		s := newStream(t, b.dev(), nil)
		require.NotZero(t, s.Handle())
		require.False(t, s.Equal(d))
		require.True(t, d.Equal(b.dev().CurrentStream(t.Context())), "creating a stream does not make it current")
		require.NoError(t, d.Close())
		_, err := d.RecordEvent(newEvent(t, nil))
		require.NoError(t, err, "closing it does nothing")
		require.NoError(t, d.Synchronize())
		require.True(t, query(t, d))
		p, err := d.Priority()
		require.NoError(t, err)
		require.Zero(t, p)
	})

	rule(t, "03 created streams do not synchronise with the default stream unless asked", 1, func(t *testing.T, b *backend) {
		d := b.dev().DefaultStream()
		free := newStream(t, b.dev(), nil)
		release := hold(t, free)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(d))
		require.NoError(t, e.Synchronize())
		release()

		bound := newStream(t, b.dev(), &cuda.StreamOptions{SyncWithDefault: true})
		release = hold(t, bound)
		require.NoError(t, e.Record(d))
		time.Sleep(soon)
		require.False(t, query(t, e))
		release()
		require.NoError(t, e.Synchronize())
	})

	rule(t, "04 priorities are clamped and read back", 1, func(t *testing.T, b *backend) {
		least, greatest, err := b.dev().StreamPriorityRange()
		require.NoError(t, err)
		require.Zero(t, least)
		require.LessOrEqual(t, greatest, 0)
		for ask, want := range map[int]int{0: 0, -1: -1, 10: 0, math.MaxInt: 0, -1000: greatest, math.MinInt: greatest} {
			s := newStream(t, b.dev(), &cuda.StreamOptions{Priority: ask})
			got, err := s.Priority()
			require.NoError(t, err)
			require.Equal(t, want, got, "priority %d", ask)
		}
	})

	rule(t, "05 query is false while busy and true when done", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		require.True(t, query(t, s))
		release := hold(t, s)
		require.False(t, query(t, s))
		release()
		require.NoError(t, s.Synchronize())
		require.True(t, query(t, s))
	})

	rule(t, "06 synchronize blocks its own goroutine only", 2, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		release := hold(t, s)
		held := make(chan error, 1)
		go func() { held <- s.Synchronize() }()
		returns(t, func() {
			require.NoError(t, other.Synchronize())
			require.NoError(t, b.devices[1].Synchronize())
		})
		select {
		case <-held:
			t.Fatal("returned while the stream was busy")
		case <-time.After(soon):
		}
		release()
		require.NoError(t, <-held)
	})

	rule(t, "07 waiting orders what is enqueued later and returns at once", 1, func(t *testing.T, b *backend) {
		first, second := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		release := hold(t, first)
		before, after := newEvent(t, nil), newEvent(t, nil)
		require.NoError(t, before.Record(second))
		require.NoError(t, second.WaitStream(first))
		require.NoError(t, after.Record(second))
		require.NoError(t, before.Synchronize(), "what was enqueued before the wait does not wait")
		time.Sleep(soon)
		require.False(t, query(t, after))
		release()
		require.NoError(t, after.Synchronize())
		require.True(t, query(t, first))

		release = hold(t, first)
		require.NoError(t, first.WaitStream(first), "waiting for oneself is harmless")
		own, err := first.RecordEvent(nil)
		require.NoError(t, err)
		require.NoError(t, first.WaitEvent(own))
		release()
		require.NoError(t, first.Synchronize())
		require.NoError(t, own.Close())
	})

	rule(t, "07 wait stream waits for what came before it only", 1, func(t *testing.T, b *backend) {
		first, second := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		require.NoError(t, second.WaitStream(first))
		release := hold(t, first)
		require.NoError(t, second.Synchronize())
		release()
	})

	rule(t, "07 waiting for and by default and external streams leaves nothing behind", 2, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		ext, err := b.dev().ExternalStream(s.Handle())
		require.NoError(t, err)
		streams := []*cuda.Stream{s, other, ext, b.devices[0].DefaultStream(), b.devices[1].DefaultStream()}
		for _, from := range streams {
			for _, to := range streams {
				require.NoError(t, from.WaitStream(to))
			}
		}
		require.NoError(t, ext.Close())
		require.NoError(t, b.devices[0].Synchronize())
		require.NoError(t, b.devices[1].Synchronize())
	})

	rule(t, "08 RecordEvent makes an event or takes one", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		made, err := s.RecordEvent(nil)
		require.NoError(t, err)
		require.NotZero(t, made.Handle())
		require.NoError(t, made.Close())
		given := newEvent(t, timed())
		got, err := s.RecordEvent(given)
		require.NoError(t, err)
		require.Same(t, given, got)
		require.NoError(t, given.Synchronize())
	})

	rule(t, "09 streams of any device wait for an event of any device", 2, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		release := hold(t, s)
		require.NoError(t, other.WaitStream(s))
		after, err := other.RecordEvent(nil)
		require.NoError(t, err)
		time.Sleep(soon)
		require.False(t, query(t, after))
		release()
		require.NoError(t, after.Synchronize())
		require.NoError(t, after.Close())
		require.NoError(t, b.devices[1].DefaultStream().WaitStream(s))
		require.NoError(t, b.devices[1].Synchronize())
	})

	rule(t, "10 an external stream is used and never destroyed", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), &cuda.StreamOptions{Priority: -1})
		ext, err := b.dev().ExternalStream(s.Handle())
		require.NoError(t, err)
		p, err := ext.Priority()
		require.NoError(t, err)
		require.Equal(t, -1, p)
		_, err = ext.RecordEvent(newEvent(t, nil))
		require.NoError(t, err)
		require.NoError(t, ext.Close())
		require.ErrorIs(t, ext.Synchronize(), cuda.ErrClosed)
		require.NoError(t, s.Synchronize(), "the stream itself lives on")

		for _, h := range []driver.Stream{0, driver.StreamLegacy} {
			ext, err := b.dev().ExternalStream(h)
			require.NoError(t, err)
			require.True(t, ext.Equal(b.dev().DefaultStream()))
		}
	})

	rule(t, "11 streams are equal by device and stream", 1, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		ext, err := b.dev().ExternalStream(s.Handle())
		require.NoError(t, err)
		require.True(t, s.Equal(ext) && ext.Equal(s))
		require.Equal(t, s.ID(), ext.ID())
		require.False(t, s.Equal(other))
		require.False(t, s.Equal(nil))
		names := map[cuda.StreamKey]string{s.Key(): "s", other.Key(): "other"}
		require.Equal(t, "s", names[ext.Key()])
		require.Equal(t, fmt.Sprintf("cuda.Stream(device 0, %#x)", uintptr(s.Handle())), s.String())
		require.NoError(t, ext.Close())

		ids := map[uint64]bool{}
		for range 100 {
			s, err := b.dev().NewStream(nil)
			require.NoError(t, err)
			require.False(t, ids[s.ID()], "an id was given out twice")
			ids[s.ID()] = true
			require.NoError(t, s.Close())
		}
	})

	rule(t, "11 streams of two devices are never equal", 2, func(t *testing.T, b *backend) {
		require.False(t, b.devices[0].DefaultStream().Equal(b.devices[1].DefaultStream()))
		require.NotEqual(t, b.devices[0].DefaultStream().Key(), b.devices[1].DefaultStream().Key())
		s := newStream(t, b.devices[0], nil)
		_, err := b.devices[1].ExternalStream(s.Handle())
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})

	rule(t, "12 every created stream is distinct", 1, func(t *testing.T, b *backend) {
		seen := map[cuda.StreamKey]bool{}
		for range 100 {
			seen[newStream(t, b.dev(), nil).Key()] = true
		}
		require.Len(t, seen, 100)
	})

	rule(t, "13 IsCapturing is about the stream asked", 1, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		capturing := func(s *cuda.Stream) bool {
			c, err := s.IsCapturing()
			require.NoError(t, err)
			return c
		}
		require.False(t, capturing(s))
		require.False(t, capturing(b.dev().DefaultStream()))
		api := b.drv.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		require.True(t, capturing(s))
		require.False(t, capturing(other))
		require.ErrorIs(t, s.SynchronizeContext(t.Context()), cuda.ErrCapturing)
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.False(t, capturing(s))
		require.Equal(t, driver.Success, api.GraphDestroy(g))
	})

	rule(t, "24 a closed stream says so, and closing twice is nil", 1, func(t *testing.T, b *backend) {
		s, err := b.dev().NewStream(nil)
		require.NoError(t, err)
		other := newStream(t, b.dev(), nil)
		require.NoError(t, s.WaitStream(other))
		require.NoError(t, other.WaitStream(s))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.Equal(t, "cuda.Stream(device 0, closed)", s.String())
		for name, err := range callAll(s, newEvent(t, nil), other) {
			require.ErrorIs(t, err, cuda.ErrClosed, name)
		}
	})

	rule(t, "24 closing a stream while another goroutine waits is safe", 1, func(t *testing.T, b *backend) {
		s, err := b.dev().NewStream(nil)
		require.NoError(t, err)
		release := hold(t, s)
		waits, done := make(chan error, 2), s.Done()
		go func() { waits <- s.Synchronize() }()
		go func() { waits <- s.SynchronizeContext(ctxBackground) }()
		time.Sleep(soon)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-waits, cuda.ErrClosed)
		require.ErrorIs(t, <-waits, cuda.ErrClosed)
		require.ErrorIs(t, <-done, cuda.ErrClosed)
		release()
	})

	rule(t, "27 a device is synchronised with all its streams", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		release := hold(t, s)
		done := make(chan error, 1)
		go func() { done <- b.dev().Synchronize() }()
		select {
		case <-done:
			t.Fatal("returned while a stream was busy")
		case <-time.After(soon):
		}
		release()
		require.NoError(t, <-done)
		require.True(t, query(t, s))
	})

	rule(t, "28 handle 2 is refused with the reason", 1, func(t *testing.T, b *backend) {
		_, err := b.dev().ExternalStream(driver.StreamPerThread)
		require.ErrorContains(t, err, "goroutines have no thread")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// callAll calls every method of s that can fail.
func callAll(s *cuda.Stream, e *cuda.Event, other *cuda.Stream) map[string]error {
	errs := map[string]error{}
	_, errs["Query"] = s.Query()
	_, errs["Priority"] = s.Priority()
	_, errs["IsCapturing"] = s.IsCapturing()
	_, errs["RecordEvent"] = s.RecordEvent(e)
	errs["WaitEvent"] = s.WaitEvent(e)
	errs["WaitStream"] = s.WaitStream(other)
	errs["Synchronize"] = s.Synchronize()
	if other != nil {
		errs["WaitStream, as the other"] = other.WaitStream(s)
		errs["SynchronizeContext"] = s.SynchronizeContext(ctxBackground)
	}
	return errs
}

func TestNilStreamIsAnError(t *testing.T) {
	var s *cuda.Stream
	require.Zero(t, s.Handle())
	require.Zero(t, s.ID())
	require.Zero(t, s.Key())
	require.Nil(t, s.Device())
	for name, err := range callAll(s, cuda.NewEvent(nil), nil) {
		require.ErrorIs(t, err, cuda.ErrInvalid, name)
	}
	require.NoError(t, s.Close())
	require.True(t, s.Equal(nil))
	require.Equal(t, "cuda.Stream(nil)", s.String())
	for name, err := range callAll(new(cuda.Stream), cuda.NewEvent(nil), nil) {
		require.ErrorIs(t, err, cuda.ErrInvalid, name)
	}
}
