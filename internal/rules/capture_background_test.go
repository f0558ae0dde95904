package rules_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// What the library does on its own behalf, and closing on other goroutines, ends
// no capture, whatever its mode.
func TestNothingInTheBackgroundEndsACapture(t *testing.T) {
	for name, capture := range testgpu.CaptureWays() {
		testgpu.Rule(t, "23 waits and closing disturb no capture: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			busy, s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			closing := oneOfEach(t, b.Device())
			release := testgpu.Hold(t, busy)
			var wg sync.WaitGroup
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(busy))
			for range 100 {
				wg.Go(func() {
					if err := e.SynchronizeContext(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
			called := make(chan error, 1)
			require.NoError(t, busy.LaunchHostFunc(func(err error) { called <- err }))
			inFlight, err := cuda.AllocHost[uint32](b.Device(), 1000, nil)
			require.NoError(t, err)
			require.NoError(t, cuda.Copy(busy, p.Buf, inFlight))

			err = capture(s, func() error {
				wg.Go(func() {
					for _, c := range append(closing[1:], inFlight.Close) {
						if err := c(); err != nil {
							t.Error(err)
						}
					}
				})
				time.Sleep(2 * testgpu.Soon) // the host functions' watch asks meanwhile
				p.Enqueue(t, s)
				return nil
			})
			require.NoError(t, err)
			release()
			wg.Wait()
			require.NoError(t, <-called)
			require.NoError(t, busy.Synchronize())
			require.NoError(t, closing[0](), "the driver frees pinned memory when the device is idle")
			requireRuns(t, p, s)
			require.NoError(t, b.Device().Synchronize())
		})

		testgpu.Rule(t, "23 freeing memory that waits for the device disturbs no capture: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			closing := oneOfEach(t, b.Device())
			err := capture(s, func() error {
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						buf, err := cuda.Alloc[uint32](b.Device(), 1000)
						if err := errors.Join(err, buf.Close()); err != nil {
							t.Error(err)
						}
					})
				}
				for _, c := range closing {
					wg.Go(func() {
						if err := c(); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				p.Enqueue(t, s)
				return nil
			})
			require.NoError(t, err)
			requireRuns(t, p, s)
		})
	}
}

// requireRuns fails the test unless what is enqueued on s is done, now that no capture goes on.
func requireRuns(t testing.TB, p *testgpu.Pipe, s *cuda.Stream) {
	t.Helper()
	p.Set(3)
	p.Enqueue(t, s)
	require.NoError(t, s.Synchronize())
	p.Require(t, 3)
}

// oneOfEach makes one of everything that can be closed, and returns the closing of
// each.
func oneOfEach(t testing.TB, d *cuda.Device) (closing []func() error) {
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	using, err := d.NewStream(nil)
	require.NoError(t, err)
	e, err := s.RecordEvent(nil)
	require.NoError(t, err)
	pooled, err := cuda.AllocAsync[uint32](s, 1000)
	require.NoError(t, err)
	pinned, err := cuda.AllocHost[uint32](d, 1000, nil)
	require.NoError(t, err)
	require.NoError(t, using.WaitStream(s))
	require.NoError(t, cuda.Copy(using, pinned, pooled))
	require.NoError(t, s.WaitStream(using))
	g, err := s.Capture(func() error { return cuda.Copy(s, pinned, pooled) })
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, x.Launch(s))
	require.NoError(t, s.Synchronize())
	require.NoError(t, using.Synchronize())
	return []func() error{pinned.Close, pooled.Close, g.Close, e.Close, x.Close, using.Close, s.Close}
}

// The garbage collector's closing ends no capture either.
func TestCollectionEndsNoCapture(t *testing.T) {
	for name, capture := range testgpu.CaptureWays() {
		t.Run(name, func(t *testing.T) {
			_, d := testgpu.SimulatedDevice(t, nil)
			s, p := testgpu.NewStream(t, d, nil), testgpu.NewPipe(t, d)
			pinned := oneOfEach(t, d)[0] // which is never collected
			require.NoError(t, capture(s, func() error {
				testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Forgotten == 6 })
				testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Graphs == 0 })
				p.Enqueue(t, s)
				return nil
			}))
			requireRuns(t, p, s)
			require.NoError(t, pinned())
		})
	}
}

// The driver gets the mode, and is not asked what might end the capture.
func TestCaptureAtTheDriver(t *testing.T) {
	var got driver.CaptureMode
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.StreamBeginCapture = func(s driver.Stream, mode driver.CaptureMode) driver.Result {
			got = mode
			return bare.StreamBeginCapture(s, mode)
		}
		api.EventElapsedTime = func(driver.Event, driver.Event) (float32, driver.Result) {
			t.Error("asked for the time between captured events")
			return 0, driver.ErrorUnknown
		}
	})
	s, e := testgpu.NewStream(t, d, nil), testgpu.NewEvent(t, testgpu.Timed())
	g, err := s.Capture(func() error {
		require.NoError(t, e.Record(s))
		_, err := e.ElapsedTime(e)
		require.ErrorIs(t, err, cuda.ErrCaptured)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.Equal(t, driver.CaptureModeRelaxed, got)
}

// Captures, records, waits and closing on many goroutines: no capture ends that
// nobody ended.
func TestCapturesRace(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	before := runtime.NumGoroutine()
	var closing []func() error
	for range 50 {
		closing = append(closing, oneOfEach(t, d)...)
	}
	var wg sync.WaitGroup
	for range 3 {
		s, p, e := testgpu.NewStream(t, d, nil), testgpu.NewPipe(t, d), testgpu.NewEvent(t, nil)
		wg.Go(func() {
			for range 100 {
				g, err := s.Capture(func() error {
					return errors.Join(e.Record(s), cuda.Copy(s, p.Buf, p.In))
				})
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(g.Close(), e.Record(s)); err != nil {
					t.Error(err)
				}
				e.Done() // goes on while the next capture records e
			}
		})
	}
	for _, c := range closing {
		if err := c(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	// Pinned memory is freed, and waits end, a moment later.
	testgpu.CollectUntil(t, func() bool { return runtime.NumGoroutine() <= before })
}
