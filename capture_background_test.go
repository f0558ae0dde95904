package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// What the library does on its own behalf, and closing on other goroutines, ends
// no capture, whatever its mode.
func TestNothingInTheBackgroundEndsACapture(t *testing.T) {
	rule(t, "23 waits and closing disturb no capture", 1, func(t *testing.T, b *backend) {
		for name, mode := range captureModes {
			t.Run(name, func(t *testing.T) {
				busy, s, p := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newPipe(t, b.dev())
				closing := doomed(t, b.dev())
				release := hold(t, busy)
				var wg sync.WaitGroup
				e := newEvent(t, nil)
				require.NoError(t, e.Record(busy))
				for range 100 {
					wg.Go(func() {
						if err := e.SynchronizeContext(ctxBackground); err != nil {
							t.Error(err)
						}
					})
				}
				called := make(chan error, 1)
				require.NoError(t, busy.LaunchHostFunc(func(err error) { called <- err }))
				inFlight, err := cuda.AllocHost[uint32](b.dev(), 1000, nil)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy(busy, p.buf, inFlight))

				g, err := s.Capture(&cuda.CaptureOptions{Mode: mode}, func() error {
					wg.Go(func() {
						for _, c := range append(closing[1:], inFlight.Close) {
							if err := c(); err != nil {
								t.Error(err)
							}
						}
					})
					time.Sleep(2 * soon) // the host functions' watch asks meanwhile
					p.enqueue(t, s)
					return nil
				})
				require.NoError(t, err)
				release()
				wg.Wait()
				require.NoError(t, <-called)
				require.NoError(t, busy.Synchronize())
				require.NoError(t, closing[0](), "the driver frees pinned memory when the device is idle")
				p.runs(t, instantiate(t, g), s)
				require.NoError(t, g.Close())
				require.NoError(t, b.dev().Synchronize())
			})
		}
	})

	rule(t, "23 freeing memory that waits for the device disturbs no capture", 1, func(t *testing.T, b *backend) {
		for name, mode := range captureModes {
			s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
			closing := doomed(t, b.dev())
			g, err := s.Capture(&cuda.CaptureOptions{Mode: mode}, func() error {
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						buf, err := cuda.Alloc[uint32](b.dev(), 1000)
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
				p.enqueue(t, s)
				return nil
			})
			require.NoError(t, err, name)
			p.runs(t, instantiate(t, g), s)
			require.NoError(t, g.Close())
		}
	})
}

// doomed makes one of everything that can be closed, and returns the closing of
// each.
func doomed(t testing.TB, d *cuda.Device) (closing []func() error) {
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
	g, err := s.Capture(nil, func() error { return cuda.Copy(s, pinned, pooled) })
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
	for name, mode := range captureModes {
		t.Run(name, func(t *testing.T) {
			_, d := simulatedDevice(t, nil)
			s, p := newStream(t, d, nil), newPipe(t, d)
			pinned := doomed(t, d)[0] // which is never collected
			g, err := s.Capture(&cuda.CaptureOptions{Mode: mode}, func() error {
				eventually(t, func() bool { return d.Driver().Stats().Forgotten == 6 })
				eventually(t, func() bool { return d.Driver().Stats().Graphs == 0 })
				p.enqueue(t, s)
				return nil
			})
			require.NoError(t, err)
			p.runs(t, instantiate(t, g), s)
			require.NoError(t, g.Close())
			require.NoError(t, pinned())
		})
	}
}

// The driver gets the mode, and is not asked what might end the capture.
func TestCaptureAtTheDriver(t *testing.T) {
	var got driver.CaptureMode
	_, d := simulatedDevice(t, func(api *driver.API) {
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
	s, e := newStream(t, d, nil), newEvent(t, timed())
	for mode, want := range map[cuda.CaptureMode]driver.CaptureMode{
		cuda.CaptureRelaxed:     driver.CaptureModeRelaxed,
		cuda.CaptureThreadLocal: driver.CaptureModeThreadLocal,
		cuda.CaptureGlobal:      driver.CaptureModeGlobal,
	} {
		g, err := s.Capture(&cuda.CaptureOptions{Mode: mode}, func() error {
			require.NoError(t, e.Record(s))
			_, err := e.ElapsedTime(e)
			require.ErrorIs(t, err, cuda.ErrCaptured)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.Equal(t, want, got)
	}
}

// A capture that the driver begins and cannot name is ended again.
func TestCaptureBeginsWholeOrNotAtAll(t *testing.T) {
	failing := false
	_, d := simulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.StreamGetCaptureInfo = func(s driver.Stream) (driver.CaptureStatus, uint64, driver.Result) {
			if failing {
				return 0, 0, driver.ErrorUnknown
			}
			return bare.StreamGetCaptureInfo(s)
		}
	})
	s, p := newStream(t, d, nil), newPipe(t, d)
	failing = true
	_, err := s.Capture(nil, func() error { t.Error("called"); return nil })
	require.ErrorIs(t, err, driver.ErrorUnknown)
	failing = false
	require.NoError(t, s.Synchronize())
	p.runs(t, instantiate(t, capture(t, s, func() { p.enqueue(t, s) })), s)
}

// Captures, records, waits and closing on many goroutines: no capture ends that
// nobody ended.
func TestCapturesRace(t *testing.T) {
	_, d := simulatedDevice(t, nil)
	before := runtime.NumGoroutine()
	var closing []func() error
	for range 50 {
		closing = append(closing, doomed(t, d)...)
	}
	var wg sync.WaitGroup
	for _, mode := range captureModes {
		s, p, e := newStream(t, d, nil), newPipe(t, d), newEvent(t, nil)
		wg.Go(func() {
			for range 100 {
				g, err := s.Capture(&cuda.CaptureOptions{Mode: mode}, func() error {
					return errors.Join(e.Record(s), cuda.Copy(s, p.buf, p.in))
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
	eventually(t, func() bool { return runtime.NumGoroutine() <= before })
}
