package ipc

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// refuses wants each call of a ring to refuse a stream by a rule, and the ring to go on as
// if they had not been made. with makes the calls with the stream of an end.
func refuses(t *testing.T, d *duo, rule error, with func(e *end, f func(*cuda.Stream))) {
	p, c := d.ring(t, 1, 8)
	with(d.a, func(s *cuda.Stream) {
		_, err := p.Next(context.Background(), s)
		require.ErrorIs(t, err, rule)
	})
	slot, err := p.Next(t.Context(), d.a.stream)
	require.NoError(t, err)
	with(d.a, func(s *cuda.Stream) { require.ErrorIs(t, slot.Send(s), rule) })
	require.NoError(t, cuda.Fill(d.a.stream, slot.Buffer, uint32(7)))
	require.NoError(t, slot.Send(d.a.stream))

	with(d.b, func(s *cuda.Stream) {
		_, err := c.Next(context.Background(), s)
		require.ErrorIs(t, err, rule)
	})
	batch, err := c.Next(within(t, 5*time.Second), d.b.stream)
	require.NoError(t, err)
	require.Zero(t, batch.Number)
	with(d.b, func(s *cuda.Stream) { require.ErrorIs(t, batch.Release(s), rule) })
	require.NoError(t, batch.Confirm(within(t, 5*time.Second)))
	require.ErrorIs(t, p.Flush(within(t, testgpu.Soon)), context.DeadlineExceeded, "the batch was not released")
	require.NoError(t, batch.Release(d.b.stream))
	require.NoError(t, p.Flush(within(t, 5*time.Second)))

	for n := range uint32(3) {
		send(t, p, d.a.stream, n)
		take(t, c, d.b.stream).has(t, n)
	}
}

// A captured batch would come later, or never, or twice.
func TestRingRefusesCapturedStreams(t *testing.T) {
	for name, change := range map[string]func(*driver.API){"counters": nil, "events": noCounters} {
		t.Run(name, func(t *testing.T) {
			refuses(t, newDuo(t, change), cuda.ErrCapturing, func(e *end, f func(*cuda.Stream)) {
				s := e.newStream(t)
				g, err := s.Capture(func() error {
					f(s)
					return nil
				})
				require.NoError(t, err)
				require.NoError(t, g.Close())
			})
		})
	}
}

// The order of a ring is kept on its own device only.
func TestRingRefusesStreamsOfAnotherDevice(t *testing.T) {
	d := newDuoOfTwoDevices(t)
	other := map[*end]*cuda.Stream{}
	for _, e := range []*end{d.a, d.b} {
		dev, err := e.drv.OpenDevice(1)
		require.NoError(t, err)
		other[e], err = dev.NewStream(nil)
		require.NoError(t, err)
		closes(t, other[e])
	}
	refuses(t, d, cuda.ErrDeviceMismatch, func(e *end, f func(*cuda.Stream)) { f(other[e]) })
}

func newDuoOfTwoDevices(t *testing.T) *duo {
	t.Helper()
	leavesNothing(t)
	gpu := cudatest.New(cudatest.Config{Devices: 2})
	d := &duo{gpu: gpu, a: newEnd(t, gpu), b: newEnd(t, gpu), dead: map[*end]bool{}}
	t.Cleanup(func() { d.end(t) })
	d.a.Session, d.b.Session = connected(t, &Options{processes: seen(d.a, d.b)}, &Options{processes: seen(d.b, d.a)})
	return d
}

// A capture may keep Close from unregistering the counters: they stay mapped until then.
func TestRingClosedInACapture(t *testing.T) {
	var c *Consumer[uint32]
	var unregistered atomic.Int32
	mapped := func() bool { return c.ring.gate.(*counters).memory.bytes != nil }
	d := newDuo(t, nil, func(api *driver.API) {
		unregister := api.MemHostUnregister
		api.MemHostUnregister = func(p unsafe.Pointer) driver.Result {
			if !mapped() {
				t.Error("unmapped while it was registered")
			}
			result := unregister(p)
			if result == driver.Success {
				unregistered.Add(1)
			}
			return result
		}
	})
	p, c := d.ring(t, 2, 8)
	s := d.b.newStream(t)
	send(t, p, d.a.stream, 1)
	batch, err := c.Next(within(t, 5*time.Second), s)
	require.NoError(t, err)
	require.NoError(t, batch.Release(s))
	require.NoError(t, s.Synchronize())
	g, err := s.Capture(func() error {
		err := c.Close()
		if unregistered.Load() == 0 {
			require.True(t, mapped())
		}
		return err
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, p.Close())
	freed(t, d)
	testgpu.WaitUntil(t, func() bool { return unregistered.Load() == 1 })
}
