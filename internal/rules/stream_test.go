package rules_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestStreamRules(t *testing.T) {
	testgpu.Rule(t, "01 work in a stream runs in order, streams are unordered", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		buf, out := testgpu.Alloc[uint32](t, b.Device(), 1000), testgpu.AllocHost[uint32](t, b.Device(), 1000)
		release := testgpu.Hold(t, s)
		for v := range uint32(10) {
			require.NoError(t, cuda.Fill(s, buf, v))
		}
		require.NoError(t, cuda.Copy(s, out, buf))
		require.NoError(t, other.Synchronize(), "another stream does not wait")
		require.False(t, testgpu.Query(t, s))
		release()
		require.NoError(t, s.Synchronize())
		for _, v := range out.Slice() {
			require.Equal(t, uint32(9), v)
		}
	})

	testgpu.Rule(t, "02 the default stream is one, has handle 0 and is current", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device().DefaultStream()
		require.Zero(t, d.Handle())
		require.True(t, d.Equal(b.Device().DefaultStream()))
		require.True(t, d.Equal(b.Device().CurrentStream(t.Context())))
		s := testgpu.NewStream(t, b.Device(), nil)
		require.NotZero(t, s.Handle())
		require.False(t, s.Equal(d))
		require.True(t, d.Equal(b.Device().CurrentStream(t.Context())), "creating a stream does not make it current")
		require.NoError(t, d.Close())
		_, err := d.RecordEvent(testgpu.NewEvent(t, nil))
		require.NoError(t, err, "closing it does nothing")
		require.NoError(t, d.Synchronize())
		require.True(t, testgpu.Query(t, d))
		p, err := d.Priority()
		require.NoError(t, err)
		require.Zero(t, p)
	})

	testgpu.Rule(t, "03 created streams do not synchronise with the default stream unless asked", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device().DefaultStream()
		free := testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, free)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(d))
		require.NoError(t, e.Synchronize())
		release()

		bound := testgpu.NewStream(t, b.Device(), &cuda.StreamOptions{SyncWithDefault: true})
		release = testgpu.Hold(t, bound)
		require.NoError(t, e.Record(d))
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, e))
		release()
		require.NoError(t, e.Synchronize())
	})

	testgpu.Rule(t, "04 priorities are clamped and read back", 1, func(t *testing.T, b *testgpu.Backend) {
		least, greatest, err := b.Device().StreamPriorityRange()
		require.NoError(t, err)
		require.Zero(t, least)
		require.LessOrEqual(t, greatest, 0)
		for ask, want := range map[int]int{0: 0, -1: -1, 10: 0, math.MaxInt: 0, -1000: greatest, math.MinInt: greatest} {
			s := testgpu.NewStream(t, b.Device(), &cuda.StreamOptions{Priority: ask})
			got, err := s.Priority()
			require.NoError(t, err)
			require.Equal(t, want, got, "priority %d", ask)
		}
	})

	testgpu.Rule(t, "05 query is false while busy and true when done", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		require.True(t, testgpu.Query(t, s))
		release := testgpu.Hold(t, s)
		require.False(t, testgpu.Query(t, s))
		release()
		require.NoError(t, s.Synchronize())
		require.True(t, testgpu.Query(t, s))
	})

	testgpu.Rule(t, "06 synchronize blocks its own goroutine only", 2, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		release := testgpu.Hold(t, s)
		held := make(chan error, 1)
		go func() { held <- s.Synchronize() }()
		testgpu.Returns(t, func() {
			require.NoError(t, other.Synchronize())
			require.NoError(t, b.Devices[1].Synchronize())
		})
		select {
		case <-held:
			t.Fatal("returned while the stream was busy")
		case <-time.After(testgpu.Soon):
		}
		release()
		require.NoError(t, <-held)
	})

	testgpu.Rule(t, "07 waiting orders what is enqueued later and returns at once", 1, func(t *testing.T, b *testgpu.Backend) {
		first, second := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, first)
		before, after := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		require.NoError(t, before.Record(second))
		require.NoError(t, second.WaitStream(first))
		require.NoError(t, after.Record(second))
		require.NoError(t, before.Synchronize(), "what was enqueued before the wait does not wait")
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, after))
		release()
		require.NoError(t, after.Synchronize())
		require.True(t, testgpu.Query(t, first))

		release = testgpu.Hold(t, first)
		require.NoError(t, first.WaitStream(first), "waiting for oneself is harmless")
		own, err := first.RecordEvent(nil)
		require.NoError(t, err)
		require.NoError(t, first.WaitEvent(own))
		release()
		require.NoError(t, first.Synchronize())
		require.NoError(t, own.Close())
	})

	testgpu.Rule(t, "07 wait stream waits for what came before it only", 1, func(t *testing.T, b *testgpu.Backend) {
		first, second := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		require.NoError(t, second.WaitStream(first))
		release := testgpu.Hold(t, first)
		require.NoError(t, second.Synchronize())
		release()
	})

	testgpu.Rule(t, "07 waiting for and by default and external streams leaves nothing behind", 2, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		ext, err := b.Device().ExternalStream(s.Handle())
		require.NoError(t, err)
		streams := []*cuda.Stream{s, other, ext, b.Devices[0].DefaultStream(), b.Devices[1].DefaultStream()}
		for _, from := range streams {
			for _, to := range streams {
				require.NoError(t, from.WaitStream(to))
			}
		}
		require.NoError(t, ext.Close())
		require.NoError(t, b.Devices[0].Synchronize())
		require.NoError(t, b.Devices[1].Synchronize())
	})

	testgpu.Rule(t, "08 RecordEvent makes an event or takes one", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		made, err := s.RecordEvent(nil)
		require.NoError(t, err)
		require.NotZero(t, made.Handle())
		require.NoError(t, made.Close())
		given := testgpu.NewEvent(t, testgpu.Timed())
		got, err := s.RecordEvent(given)
		require.NoError(t, err)
		require.Same(t, given, got)
		require.NoError(t, given.Synchronize())
	})

	testgpu.Rule(t, "09 streams of any device wait for an event of any device", 2, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		release := testgpu.Hold(t, s)
		require.NoError(t, other.WaitStream(s))
		after, err := other.RecordEvent(nil)
		require.NoError(t, err)
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, after))
		release()
		require.NoError(t, after.Synchronize())
		require.NoError(t, after.Close())
		require.NoError(t, b.Devices[1].DefaultStream().WaitStream(s))
		require.NoError(t, b.Devices[1].Synchronize())
	})

	testgpu.Rule(t, "10 an external stream is used and never destroyed", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), &cuda.StreamOptions{Priority: -1})
		ext, err := b.Device().ExternalStream(s.Handle())
		require.NoError(t, err)
		p, err := ext.Priority()
		require.NoError(t, err)
		require.Equal(t, -1, p)
		_, err = ext.RecordEvent(testgpu.NewEvent(t, nil))
		require.NoError(t, err)
		require.NoError(t, ext.Close())
		require.ErrorIs(t, ext.Synchronize(), cuda.ErrClosed)
		require.NoError(t, s.Synchronize(), "the stream itself lives on")

		for _, h := range []driver.Stream{0, driver.StreamLegacy} {
			ext, err := b.Device().ExternalStream(h)
			require.NoError(t, err)
			require.True(t, ext.Equal(b.Device().DefaultStream()))
		}
	})

	testgpu.Rule(t, "11 streams are equal by device and stream", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		ext, err := b.Device().ExternalStream(s.Handle())
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
			s, err := b.Device().NewStream(nil)
			require.NoError(t, err)
			require.False(t, ids[s.ID()], "an id was given out twice")
			ids[s.ID()] = true
			require.NoError(t, s.Close())
		}
	})

	testgpu.Rule(t, "11 streams of two devices are never equal", 2, func(t *testing.T, b *testgpu.Backend) {
		require.False(t, b.Devices[0].DefaultStream().Equal(b.Devices[1].DefaultStream()))
		require.NotEqual(t, b.Devices[0].DefaultStream().Key(), b.Devices[1].DefaultStream().Key())
		s := testgpu.NewStream(t, b.Devices[0], nil)
		_, err := b.Devices[1].ExternalStream(s.Handle())
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})

	testgpu.Rule(t, "12 every created stream is distinct", 1, func(t *testing.T, b *testgpu.Backend) {
		seen := map[cuda.StreamKey]bool{}
		for range 100 {
			seen[testgpu.NewStream(t, b.Device(), nil).Key()] = true
		}
		require.Len(t, seen, 100)
	})

	testgpu.Rule(t, "13 IsCapturing is about the stream asked", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		capturing := func(s *cuda.Stream) bool {
			c, err := s.IsCapturing()
			require.NoError(t, err)
			return c
		}
		require.False(t, capturing(s))
		require.False(t, capturing(b.Device().DefaultStream()))
		api := b.Driver.API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		require.True(t, capturing(s))
		require.False(t, capturing(other))
		require.ErrorIs(t, s.SynchronizeContext(t.Context()), cuda.ErrCapturing)
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.False(t, capturing(s))
		require.Equal(t, driver.Success, api.GraphDestroy(g))
	})

	testgpu.Rule(t, "24 a closed stream says so, and closing twice is nil", 1, func(t *testing.T, b *testgpu.Backend) {
		s, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		other := testgpu.NewStream(t, b.Device(), nil)
		require.NoError(t, s.WaitStream(other))
		require.NoError(t, other.WaitStream(s))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.Equal(t, "cuda.Stream(device 0, closed)", s.String())
		for name, err := range testgpu.StreamCalls(s, testgpu.NewEvent(t, nil), other) {
			require.ErrorIs(t, err, cuda.ErrClosed, name)
		}
	})

	testgpu.Rule(t, "24 closing a stream while another goroutine waits is safe", 1, func(t *testing.T, b *testgpu.Backend) {
		s, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
		waits, done := make(chan error, 2), s.Done()
		go func() { waits <- s.Synchronize() }()
		go func() { waits <- s.SynchronizeContext(context.Background()) }()
		time.Sleep(testgpu.Soon)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-waits, cuda.ErrClosed)
		require.ErrorIs(t, <-waits, cuda.ErrClosed)
		require.ErrorIs(t, <-done, cuda.ErrClosed)
		release()
	})

	testgpu.Rule(t, "27 a device is synchronised with all its streams", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, s)
		done := make(chan error, 1)
		go func() { done <- b.Device().Synchronize() }()
		select {
		case <-done:
			t.Fatal("returned while a stream was busy")
		case <-time.After(testgpu.Soon):
		}
		release()
		require.NoError(t, <-done)
		require.True(t, testgpu.Query(t, s))
	})

	testgpu.Rule(t, "28 handle 2 is refused with the reason", 1, func(t *testing.T, b *testgpu.Backend) {
		_, err := b.Device().ExternalStream(driver.StreamPerThread)
		require.ErrorContains(t, err, "goroutines have no thread")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}
