package native_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The driver may take long to make an event, beside a busy device or another
// thread. A goroutine that cancels, closes, or waits for something else does not wait for that.
func TestNobodyWaitsBehindEventCreate(t *testing.T) {
	create := testgpu.NewGate()
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventCreate
		api.EventCreate = func(f uint32) (driver.Event, driver.Result) { create.Pass(); return bare(f) }
	})
	var streams [5]*cuda.Stream
	var releases [5]func()
	for i := range streams {
		streams[i] = testgpu.NewStream(t, b.Device(), nil)
		releases[i] = testgpu.Hold(t, streams[i])
	}
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(streams[0]))
	waiting := testgpu.Go(e.Synchronize)
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := testgpu.Go(func() error { return streams[1].SynchronizeContext(ctx) })
	closing, done := streams[2].Done(), streams[3].Done()
	testgpu.Parked(t, b.Driver, 4)
	release := create.Close()
	other := testgpu.Go(streams[4].Synchronize)
	<-create.Entered
	cancel()
	require.ErrorIs(t, testgpu.Receive(t, cancelled), context.Canceled)
	require.NoError(t, testgpu.Receive(t, testgpu.Go(streams[2].Close)))
	require.ErrorIs(t, testgpu.Receive(t, closing), cuda.ErrClosed)
	releases[3]() // gives an event back
	require.NoError(t, testgpu.Receive(t, done))
	releases[0]()
	require.NoError(t, testgpu.Receive(t, waiting))
	release()
	for _, r := range releases {
		r()
	}
	require.NoError(t, testgpu.Receive(t, other))
}

// WaitAll asks for each a few times, however many are done already, and looks at its
// context meanwhile.
func TestWaitAllAsksLittle(t *testing.T) {
	_, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	busy, idle := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
	release := testgpu.Hold(t, busy)
	defer release()
	const n = 1000
	var work []cuda.Waitable
	for i := range 2 * n {
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record([]*cuda.Stream{busy, idle}[i/n]))
		work = append(work, e)
	}
	before := b.Driver.WaitStats().Queries
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, cuda.WaitAll(ctx, work...), context.DeadlineExceeded)
	require.Less(t, b.Driver.WaitStats().Queries-before, uint64(20*n))
}

// The driver blocks a call that enqueues on a stream whose queue is full. Waits for other work
// end all the same, also if a capture goes on or wants to begin.
func TestAFullQueueStopsNoWait(t *testing.T) {
	for name, enqueue := range map[string]func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, meanwhile func()){
		"a wait, and then a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, meanwhile func()) {
			waiting := testgpu.Go(full.Synchronize)
			<-held
			capture := testgpu.Go(func() error {
				g, err := captured.Capture(func() error { return nil })
				return errors.Join(err, g.Close())
			})
			time.Sleep(20 * time.Millisecond) // until it wants to begin
			meanwhile()
			require.NoError(t, testgpu.Receive(t, capture))
			require.NoError(t, testgpu.Receive(t, waiting))
		},
		"a record beside a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, meanwhile func()) {
			e := testgpu.NewEvent(t, nil)
			g, err := captured.Capture(func() error {
				recording := testgpu.Go(func() error { return e.Record(full) })
				<-held
				meanwhile()
				return testgpu.Receive(t, recording)
			})
			require.NoError(t, errors.Join(err, g.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := testgpu.NewGate()
			var full driver.Stream
			gpu, b := testgpu.Simulated(t, cudatest.Config{Devices: 2}, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					if s == full {
						record.Pass()
					}
					return bare(e, s)
				}
			})
			s, captured, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Devices[1], nil)
			releaseFull, releaseOther := gpu.Hold(s), gpu.Hold(other)
			e, shared := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true})
			require.NoError(t, e.Record(other))
			require.NoError(t, shared.Record(other))
			waiting := []<-chan error{e.Done(), shared.Done(), other.Done()}
			testgpu.Parked(t, b.Driver, len(waiting))
			full = s.Handle()
			open := record.Close()
			enqueue(t, s, captured, record.Entered, func() {
				releaseOther()
				for _, done := range waiting {
					require.NoError(t, testgpu.Receive(t, done))
				}
				open()
				releaseFull()
			})
		})
	}
}

// A record that the driver blocks, as the queue of its stream is full, blocks no call that
// has nothing to do with that stream, whether a capture goes on or not.
func TestAFullQueueHoldsUpNobodyElse(t *testing.T) {
	for name, inCapture := range map[string]bool{"": false, "beside a capture": true} {
		t.Run(name, func(t *testing.T) {
			record := testgpu.NewGate()
			var full driver.Stream
			_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					if s == full {
						record.Pass()
					}
					return bare(e, s)
				}
			})
			d := b.Device()
			s, other, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			captured := testgpu.NewStream(t, d, nil)
			onFull, onOther, old := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
			require.NoError(t, errors.Join(onFull.Record(s), old.Record(other)))
			buf, pooled := testgpu.Alloc[uint32](t, d, 4), testgpu.AllocAsync[uint32](t, other, 4)
			full = s.Handle()
			others := func() error {
				open := record.Close()
				recording := testgpu.Go(func() error { return onFull.Record(s) })
				<-record.Entered
				for what, f := range map[string]func() error{
					"record":                 func() error { return onOther.Record(other) },
					"wait":                   func() error { return old.Wait(third) },
					"WaitStream":             func() error { return third.WaitStream(other) },
					"event query":            func() error { _, err := old.Query(); return err },
					"event synchronize":      old.Synchronize,
					"stream query":           func() error { _, err := other.Query(); return err },
					"stream synchronize":     other.Synchronize,
					"query of what it holds": func() error { _, err := onFull.Query(); return err },
					"fill":                   func() error { return cuda.Fill(other, buf, 1) },
					"slice":                  func() error { return cuda.CopyToSlice(t.Context(), other, make([]uint32, 4), buf) },
					"free":                   func() error { return errors.Join(third.WaitStream(other), cuda.Fill(third, pooled, 1), pooled.Close()) },
					"alloc": func() error {
						b, err := cuda.AllocAsync[uint32](other, 4)
						return errors.Join(err, b.Close())
					},
					"stream": func() error { s, err := d.NewStream(nil); return errors.Join(err, s.Close()) },
					"event":  func() error { e := cuda.NewEvent(nil); return errors.Join(e.Record(third), e.Close()) },
					"capture": func() error {
						g, err := third.Capture(func() error { return cuda.Fill(third, buf, 1) })
						return errors.Join(err, g.Close())
					},
				} {
					require.NoError(t, testgpu.Receive(t, testgpu.Go(f)), what)
				}
				testgpu.NotReady(t, recording)
				open()
				return testgpu.Receive(t, recording)
			}
			if !inCapture {
				require.NoError(t, others())
				return
			}
			g, err := captured.Capture(others)
			require.NoError(t, errors.Join(err, g.Close()))
		})
	}
}

// Forgotten memory that another device still uses is freed by the garbage
// collector, which is in no bubble and may have to wait. That goes together with
// waits in the bubble, whichever begins first.
func TestCleanupWaitsBesideABubble(t *testing.T) {
	for name, waitFirst := range map[string]bool{"the bubble first": true, "the cleanup first": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gpu := cudatest.New(cudatest.Config{Devices: 2})
				drv, err := cuda.OpenDriver(gpu.API())
				require.NoError(t, err)
				d0, err := drv.OpenDevice(0)
				require.NoError(t, err)
				d1, err := drv.OpenDevice(1)
				require.NoError(t, err)
				s, dst := testgpu.NewStream(t, d1, nil), testgpu.Alloc[byte](t, d1, 1<<10)
				gpu.Run(s, time.Hour)
				func() {
					b, err := cuda.Alloc[byte](d0, 1<<10)
					require.NoError(t, err)
					require.NoError(t, cuda.Copy[byte](s, dst, b))
				}()
				e := testgpu.NewEvent(t, nil)
				require.NoError(t, e.Record(s))
				var done <-chan error
				if waitFirst {
					done = e.Done()
				}
				for drv.Stats().Forgotten == 0 { // no time passes in the bubble
					runtime.GC()
					runtime.Gosched()
				}
				if !waitFirst {
					done = e.Done()
				}
				require.NoError(t, <-done)
			})
		})
	}
}

// Waits in a bubble and outside of it at the same time, for one driver that knows nothing of
// bubbles.
func TestWaitsInAndOutOfABubble(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	api.Sleep = nil
	var ready atomic.Bool
	api.EventQuery = func(driver.Event) driver.Result {
		if ready.Load() {
			return driver.Success
		}
		return driver.ErrorNotReady
	}
	b := testgpu.Open(t, &api)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(testgpu.NewStream(t, b.Device(), nil)))
	outside := e.Done()
	synctest.Test(t, func(t *testing.T) {
		inside := e.Done()
		ready.Store(true)
		require.NoError(t, <-inside)
		require.NoError(t, e.Synchronize())
	})
	require.NoError(t, testgpu.Receive(t, outside))
}

// A wait for a stream ends with the driver's own, which shows what kernels have printed, also
// where another wait has begun to do that and not done it yet.
func TestFlushThatAnotherWaitHasTaken(t *testing.T) {
	for name, first := range map[string]func(s, held *cuda.Stream) error{
		"in a wait for several":    func(s, held *cuda.Stream) error { return cuda.WaitAll(context.Background(), s, held) },
		"on its way to the driver": func(s, _ *cuda.Stream) error { return s.Synchronize() },
	} {
		t.Run(name, func(t *testing.T) {
			flushes := testgpu.NewGate()
			var made atomic.Int32
			_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				bare := api.EventSynchronize
				api.EventSynchronize = func(e driver.Event) driver.Result {
					flushes.Pass()
					defer made.Add(1)
					return bare(e)
				}
			})
			d := b.Device()
			s, held := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			buf := testgpu.AllocAsync[uint32](t, s, 16)
			fill := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_fill")
			require.NoError(t, s.Synchronize())
			release := testgpu.Hold(t, held)
			made.Store(0)
			require.NoError(t, fill.Launch(s, cuda.Grid1D(16, 16), buf, uint64(16), uint32(1)))
			open := flushes.Close()
			testgpu.ReleaseAtEnd(t, open)
			one := testgpu.Go(func() error { return first(s, held) })
			testgpu.WaitUntil(t, func() bool { return len(flushes.Entered) > 0 || d.Driver().WaitStats().Waiting > 0 })
			other := testgpu.Go(s.Synchronize)
			testgpu.NotReady(t, other)
			open()
			require.NoError(t, testgpu.Receive(t, other))
			require.NotZero(t, made.Load())
			release()
			require.NoError(t, testgpu.Receive(t, one))
		})
	}
}

// A wait for the device may be held up in the driver. A capture waits for that before it
// halts its stream, so that calls on the stream do not.
func TestRecordBesideACaptureThatWaitsForADevice(t *testing.T) {
	records := testgpu.NewGate()
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.CtxRecordEvent
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result { records.Pass(); return bare(c, e) }
	})
	d := b.Device()
	s := testgpu.NewStream(t, d, nil)
	open := records.Close()
	testgpu.ReleaseAtEnd(t, open)
	device := testgpu.Go(d.Synchronize)
	<-records.Entered
	capture := testgpu.Go(func() error {
		g, err := s.Capture(func() error { return nil })
		return errors.Join(err, g.Close())
	})
	testgpu.NotReady(t, capture)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, testgpu.Receive(t, testgpu.Go(func() error { return e.Record(s) })))
	open()
	require.NoError(t, testgpu.Receive(t, device))
	require.NoError(t, testgpu.Receive(t, capture))
}

// A slice copy that waits for a chunk of staging memory gets the first that is free: one
// that a copy has used, or one that another call gives back.
func TestSliceCopyTakesTheFirstChunk(t *testing.T) {
	const chunk = 1 << 20
	_, d := testgpu.SimulatedDevice(t, nil)
	held, s := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	seven, one := testgpu.Alloc[uint8](t, d, 7*chunk), testgpu.Alloc[uint8](t, d, chunk)
	testgpu.Hold(t, held)
	release := testgpu.Hold(t, s)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), held, seven, make([]byte, 7*chunk)))
	out := testgpu.Go(func() error { return cuda.CopyToSlice(t.Context(), s, make([]byte, chunk), one) })
	testgpu.Parked(t, d.Driver(), 1)
	in := testgpu.Go(func() error { return cuda.CopyFromSlice(t.Context(), s, one, make([]byte, chunk)) })
	testgpu.WaitUntil(t, func() bool { return d.Driver().WaitStats().Waiting > 1 })
	release()
	require.NoError(t, testgpu.Receive(t, out))
	require.NoError(t, testgpu.Receive(t, in))
}
