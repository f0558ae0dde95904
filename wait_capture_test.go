package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// crowded are waits of all kinds that a capture must survive.
type crowded struct {
	streams []*cuda.Stream // busy
	event   *cuda.Event
	waits   []<-chan error
}

// begin begins n waits, those that record something among them.
func (c *crowded) begin(t testing.TB, n int) {
	for i := range n {
		s := c.streams[i%len(c.streams)]
		switch i % 5 {
		case 0:
			c.waits = append(c.waits, started(func() error { return c.event.SynchronizeContext(t.Context()) }))
		case 1:
			c.waits = append(c.waits, s.Done())
		case 2:
			c.waits = append(c.waits, started(func() error { return cuda.WaitAll(t.Context(), s, c.event) }))
		case 3:
			c.waits = append(c.waits, c.event.Done())
		default:
			c.waits = append(c.waits, started(s.Synchronize))
		}
	}
}

func TestCapturesSurviveWaits(t *testing.T) {
	for name, capture := range captureWays() {
		rule(t, "23 waits end no capture: "+name, 1, func(t *testing.T, b *backend) {
			captured, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
			c := &crowded{event: newEvent(t, nil)}
			var releases []func()
			for range 10 {
				s := newStream(t, b.dev(), nil)
				c.streams, releases = append(c.streams, s), append(releases, block(t, s))
			}
			require.NoError(t, c.event.Record(c.streams[0]))
			device := b.dev().Done() // before any capture
			c.begin(t, 500)
			require.NoError(t, capture(captured, func() error {
				p.enqueue(t, captured)
				c.begin(t, 500)
				parked(t, b.drv, 1+1000+200) // WaitAll of two counts twice
				asked := b.drv.WaitStats().Queries
				becomes(t, func() bool { return b.drv.WaitStats().Queries > asked+100 })
				for _, release := range releases[1:] {
					release()
				}
				for i := 9; i < len(c.waits); i += 10 {
					if err := told(t, c.waits[i]); err != nil { // of stream 9
						return err
					}
				}
				p.enqueue(t, captured)
				return nil
			}))
			releases[0]()
			for i, done := range c.waits {
				if i%10 != 9 {
					require.NoError(t, told(t, done))
				}
			}
			require.NoError(t, told(t, device))
			nobodyWaits(t, b.drv)
			p.set(3)
			p.enqueue(t, captured)
			require.NoError(t, captured.Synchronize())
			p.require(t, 3)
		})
	}

	rule(t, "23 what would end a capture is refused", 1, func(t *testing.T, b *backend) {
		s, busy := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		p, e, idle := newPipe(t, b.dev()), newEvent(t, nil), newEvent(t, nil)
		release := block(t, busy)
		require.NoError(t, idle.Record(busy))
		g, err := s.Capture(func() error {
			require.NoError(t, e.Record(s))
			for name, wait := range ways {
				require.ErrorIs(t, wait(t.Context(), b.dev()), cuda.ErrCapturing, name)
				require.ErrorIs(t, wait(t.Context(), s), cuda.ErrCapturing, name)
				require.ErrorIs(t, wait(t.Context(), e), cuda.ErrCaptured, name)
			}
			which, err := cuda.WaitAny(t.Context(), idle, b.dev())
			require.Equal(t, 1, which)
			require.ErrorIs(t, err, cuda.ErrCapturing)
			p.enqueue(t, s)
			return nil
		})
		require.NoError(t, err)
		require.Zero(t, b.drv.WaitStats().Waiting)
		release()
		p.runs(t, instantiate(t, g), s)
		require.NoError(t, g.Close())
		require.NoError(t, b.dev().Synchronize())
	})
}

// An event that is waited for, and recorded in a capture meanwhile, still ends its
// waits with the former record.
func TestWaitedForAndCaptured(t *testing.T) {
	rule(t, "23 an event is captured while it is waited for", 1, func(t *testing.T, b *backend) {
		s, captured := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		e := newEvent(t, nil)
		release := block(t, s)
		require.NoError(t, e.Record(s))
		all := waits(t, e)
		parked(t, b.drv, len(all))
		g := capture(t, captured, func() {
			require.NoError(t, e.Record(captured))
			require.ErrorIs(t, e.Synchronize(), cuda.ErrCaptured)
			notTold(t, all...)
			release()
			for _, done := range all {
				require.NoError(t, told(t, done))
			}
		})
		require.NotNil(t, g)
		require.ErrorIs(t, e.Synchronize(), cuda.ErrCaptured)
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize())
		becomes(t, func() bool { return b.drv.Stats().Events == 1 })
	})
}

// Captures on one device do not concern waits for another.
func TestCaptureOnAnotherDevice(t *testing.T) {
	rule(t, "23 a device can be waited for beside another's capture", 2, func(t *testing.T, b *backend) {
		s, far := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		p := newPipe(t, b.devices[0])
		release := block(t, far)
		g := capture(t, s, func() {
			all := waits(t, b.devices[1])
			parked(t, b.drv, len(all))
			release()
			for _, done := range all {
				require.NoError(t, told(t, done))
			}
			p.enqueue(t, s)
		})
		p.runs(t, instantiate(t, g), s)
	})
}

// Waiting for a device with a driver that has no event for that ends no capture
// either, also if the capture begins while the wait goes on.
func TestCapturesSurviveOldDeviceWaits(t *testing.T) {
	gpu, b := simulatedDevices(t, cudatest.Config{DriverVersion: 12040}, nil)
	busy, s, p := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newPipe(t, b.dev())
	release := gpu.Hold(busy)
	first := b.dev().Done()
	second := b.dev().Done() // is asked for when the first is over
	parked(t, b.drv, 2)
	time.Sleep(soon)
	g, err := s.Capture(func() error {
		p.enqueue(t, s)
		release()
		require.NoError(t, told(t, first))
		time.Sleep(soon)
		p.enqueue(t, s)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, told(t, second))
	p.runs(t, instantiate(t, g), s)
	require.NoError(t, g.Close())
}
