package rules_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// pendingWaits are waits of all kinds that a capture must survive.
type pendingWaits struct {
	streams []*cuda.Stream // busy
	event   *cuda.Event
	waits   []<-chan error
}

// begin begins n waits, those that record something among them.
func (c *pendingWaits) begin(t testing.TB, n int) {
	for i := range n {
		s := c.streams[i%len(c.streams)]
		switch i % 5 {
		case 0:
			c.waits = append(c.waits, testgpu.Go(func() error { return c.event.SynchronizeContext(t.Context()) }))
		case 1:
			c.waits = append(c.waits, s.Done())
		case 2:
			c.waits = append(c.waits, testgpu.Go(func() error { return cuda.WaitAll(t.Context(), s, c.event) }))
		case 3:
			c.waits = append(c.waits, c.event.Done())
		default:
			c.waits = append(c.waits, testgpu.Go(s.Synchronize))
		}
	}
}

func TestCapturesSurviveWaits(t *testing.T) {
	for name, capture := range testgpu.CaptureWays() {
		testgpu.Rule(t, "23 waits end no capture: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			captured, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			c := &pendingWaits{event: testgpu.NewEvent(t, nil)}
			var releases []func()
			for range 10 {
				s := testgpu.NewStream(t, b.Device(), nil)
				c.streams, releases = append(c.streams, s), append(releases, testgpu.Hold(t, s))
			}
			require.NoError(t, c.event.Record(c.streams[0]))
			device := b.Device().Done() // before any capture
			c.begin(t, 500)
			require.NoError(t, capture(captured, func() error {
				p.Enqueue(t, captured)
				c.begin(t, 500)
				testgpu.Parked(t, b.Driver, 1+1000+200) // WaitAll of two counts twice
				asked := b.Driver.WaitStats().Queries
				testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Queries > asked+100 })
				for _, release := range releases[1:] {
					release()
				}
				for i := 9; i < len(c.waits); i += 10 {
					if err := testgpu.Receive(t, c.waits[i]); err != nil { // of stream 9
						return err
					}
				}
				p.Enqueue(t, captured)
				return nil
			}))
			releases[0]()
			for i, done := range c.waits {
				if i%10 != 9 {
					require.NoError(t, testgpu.Receive(t, done))
				}
			}
			require.NoError(t, testgpu.Receive(t, device))
			testgpu.NoWaits(t, b.Driver)
			p.Set(3)
			p.Enqueue(t, captured)
			require.NoError(t, captured.Synchronize())
			p.Require(t, 3)
		})
	}

	testgpu.Rule(t, "23 what would end a capture is refused", 1, func(t *testing.T, b *testgpu.Backend) {
		s, busy := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		p, e, idle := testgpu.NewPipe(t, b.Device()), testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		release := testgpu.Hold(t, busy)
		require.NoError(t, idle.Record(busy))
		g, err := s.Capture(func() error {
			require.NoError(t, e.Record(s))
			for name, wait := range testgpu.WaitWays {
				require.ErrorIs(t, wait(t.Context(), b.Device()), cuda.ErrCapturing, name)
				require.ErrorIs(t, wait(t.Context(), s), cuda.ErrCapturing, name)
				require.ErrorIs(t, wait(t.Context(), e), cuda.ErrCaptured, name)
			}
			which, err := cuda.WaitAny(t.Context(), idle, b.Device())
			require.Equal(t, 1, which)
			require.ErrorIs(t, err, cuda.ErrCapturing)
			p.Enqueue(t, s)
			return nil
		})
		require.NoError(t, err)
		require.Zero(t, b.Driver.WaitStats().Waiting)
		release()
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
		require.NoError(t, g.Close())
		require.NoError(t, b.Device().Synchronize())
	})
}

// An event that is waited for, and recorded in a capture meanwhile, still ends its
// waits with the former record.
func TestWaitedForAndCaptured(t *testing.T) {
	testgpu.Rule(t, "23 an event is captured while it is waited for", 1, func(t *testing.T, b *testgpu.Backend) {
		s, captured := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, nil)
		release := testgpu.Hold(t, s)
		require.NoError(t, e.Record(s))
		all := testgpu.Waits(t, e)
		testgpu.Parked(t, b.Driver, len(all))
		g := testgpu.Capture(t, captured, func() {
			require.NoError(t, e.Record(captured))
			require.ErrorIs(t, e.Synchronize(), cuda.ErrCaptured)
			testgpu.NotReady(t, all...)
			release()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
		})
		require.NotNil(t, g)
		require.ErrorIs(t, e.Synchronize(), cuda.ErrCaptured)
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize())
		testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Events == 1 })
	})
}

// Captures on one device do not concern waits for another.
func TestCaptureOnAnotherDevice(t *testing.T) {
	testgpu.Rule(t, "23 a device can be waited for beside another's capture", 2, func(t *testing.T, b *testgpu.Backend) {
		s, far := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		p := testgpu.NewPipe(t, b.Devices[0])
		release := testgpu.Hold(t, far)
		g := testgpu.Capture(t, s, func() {
			all := testgpu.Waits(t, b.Devices[1])
			testgpu.Parked(t, b.Driver, len(all))
			release()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
			p.Enqueue(t, s)
		})
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
	})
}

// Waiting for a device with a driver that has no event for that ends no capture
// either, also if the capture begins while the wait goes on.
func TestCapturesSurviveOldDeviceWaits(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{DriverVersion: 12040}, nil)
	busy, s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
	release := gpu.Hold(busy)
	first := b.Device().Done()
	second := b.Device().Done() // is asked for when the first is over
	testgpu.Parked(t, b.Driver, 2)
	time.Sleep(testgpu.Soon)
	g, err := s.Capture(func() error {
		p.Enqueue(t, s)
		release()
		require.NoError(t, testgpu.Receive(t, first))
		time.Sleep(testgpu.Soon)
		p.Enqueue(t, s)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, testgpu.Receive(t, second))
	p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
	require.NoError(t, g.Close())
}

// What the library asks on its own behalf must not end a capture that another
// goroutine runs in the driver's default mode.
func TestWaitingDoesNotEndACapture(t *testing.T) {
	testgpu.Rule(t, "06 a wait does not end another's capture", 1, func(t *testing.T, b *testgpu.Backend) {
		busy, captured := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, busy)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(busy))
		api := b.Driver.API()
		done := make(chan error, 1)
		var graph driver.Graph
		func() {
			runtime.LockOSThread() // a capture in this mode ends on its own thread
			defer runtime.UnlockOSThread()
			require.Equal(t, driver.Success, api.StreamBeginCapture(captured.Handle(), driver.CaptureModeGlobal))
			go func() { done <- e.SynchronizeContext(context.Background()) }()
			time.Sleep(testgpu.Soon)
			var r driver.Result
			graph, r = api.StreamEndCapture(captured.Handle())
			require.Equal(t, driver.Success, r)
		}()
		require.Equal(t, driver.Success, api.GraphDestroy(graph))
		release()
		require.NoError(t, <-done)
	})
}
