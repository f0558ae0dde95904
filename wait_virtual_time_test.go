package cuda_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestManyWaitsInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		const streams, n = 10, 1000
		began := time.Now()
		var wg sync.WaitGroup
		for i := range streams {
			s := testgpu.NewStream(t, d, nil)
			at := time.Duration(0)
			for j := range n / streams {
				work := time.Duration(i+1) * time.Duration(j%7) * 300 * time.Millisecond
				at += work
				want := at
				gpu.Run(s, work)
				e := testgpu.NewEvent(t, nil)
				require.NoError(t, e.Record(s))
				var wait func() error
				switch j % 6 {
				case 0:
					wait = e.Synchronize
				case 1:
					done := e.Done()
					wait = func() error { return <-done }
				case 2:
					done := s.Done()
					wait = func() error { return <-done }
				case 3:
					wait = func() error { return cuda.WaitAll(context.Background(), e, e) }
				case 4:
					wait = func() error { _, err := cuda.WaitAny(context.Background(), e); return err }
				default:
					wait = func() error { return e.SynchronizeContext(t.Context()) }
				}
				wg.Go(func() {
					if err := wait(); err != nil {
						t.Error(err)
					}
					testgpu.OnTime(t, began, want)
				})
			}
		}
		wg.Wait()
		require.NoError(t, d.Synchronize())
	})
}

func TestCancellingInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		e, long := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		gpu.Run(s, time.Hour)
		gpu.Run(other, 2*time.Hour)
		require.NoError(t, e.Record(s))
		require.NoError(t, long.Record(other))
		var wg sync.WaitGroup
		for i, wait := range []func(ctx context.Context) error{
			e.SynchronizeContext, s.SynchronizeContext, d.SynchronizeContext,
			func(ctx context.Context) error { return cuda.WaitAll(ctx, e, s) },
			func(ctx context.Context) error { _, err := cuda.WaitAny(ctx, s, long, d); return err },
		} {
			for _, after := range []time.Duration{1, time.Microsecond, 700 * time.Millisecond, time.Second, 59 * time.Minute} {
				wg.Go(func() {
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), after)
					defer cancel()
					if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%d: %v", i, err)
					}
					if took := time.Since(began); took != after {
						t.Errorf("%d: ended after %v, not %v", i, took, after)
					}
				})
			}
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 0, d.Driver().WaitStats().Waiting)
		require.Equal(t, 0, d.Driver().WaitStats().Watchers)
	})
}

func TestSelectsInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s := testgpu.NewStream(t, d, nil)
		began := time.Now()
		gpu.Run(s, 10*time.Second)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		gpu.Run(s, 10*time.Second)
		var seconds, work int
		for eDone, sDone, dDone := e.Done(), s.Done(), d.Done(); work < 3; {
			select {
			case err := <-eDone:
				require.NoError(t, err)
				testgpu.OnTime(t, began, 10*time.Second)
				eDone, work = nil, work+1
			case err := <-sDone:
				require.NoError(t, err)
				testgpu.OnTime(t, began, 20*time.Second)
				sDone, work = nil, work+1
			case err := <-dDone:
				require.NoError(t, err)
				testgpu.OnTime(t, began, 20*time.Second)
				dDone, work = nil, work+1
			case <-time.After(time.Second):
				seconds++
			}
		}
		require.GreaterOrEqual(t, seconds, 18)
		require.LessOrEqual(t, seconds, 20)
	})
}

func TestWaitAnyInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		var work []cuda.Waitable
		for i := range 5 {
			s := testgpu.NewStream(t, d, nil)
			gpu.Run(s, time.Duration(5-i)*time.Minute)
			work = append(work, s)
		}
		began := time.Now()
		for i := range 5 {
			which, err := cuda.WaitAny(t.Context(), work...)
			require.NoError(t, err)
			require.Equal(t, 4-i, which)
			testgpu.OnTime(t, began, time.Duration(1+i)*time.Minute)
			work = work[:which]
		}

		// Work that ends at the same moment as the context.
		s := testgpu.NewStream(t, d, nil)
		gpu.Run(s, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if which, err := cuda.WaitAny(ctx, s); err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, -1, which)
		}
		require.Equal(t, time.Second, time.Since(began).Truncate(testgpu.Late))
	})
}

// A release wakes those who wait, at that time.
func TestHoldsInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s := testgpu.NewStream(t, d, nil)
		for _, after := range []time.Duration{time.Microsecond, time.Millisecond, time.Minute} {
			began := time.Now()
			time.AfterFunc(after, gpu.Hold(s))
			all := append(testgpu.Waits(t, s), testgpu.Waits(t, d)...)
			for _, done := range all {
				require.NoError(t, <-done)
			}
			testgpu.OnTime(t, began, after)
		}
	})
}

// Waits that were given up, and work that never ends, keep no bubble from ending.
func TestBubbleEndsAfterCancelledWaits(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			gpu := cudatest.New(cudatest.Config{})
			drv, err := cuda.OpenDriver(gpu.API())
			require.NoError(t, err)
			d, err := drv.OpenDevice(0)
			require.NoError(t, err)
			s := testgpu.NewStream(t, d, nil)
			gpu.Hold(s)
			e, forgotten := testgpu.NewEvent(t, nil), cuda.NewEvent(nil)
			require.NoError(t, e.Record(s))
			require.NoError(t, forgotten.Record(s))
			forgotten.Done()
			ctx, cancel := context.WithCancel(t.Context())
			var all []<-chan error
			for range 100 {
				all = append(all, testgpu.Go(func() error { return e.SynchronizeContext(ctx) }),
					testgpu.Go(func() error { return cuda.WaitAll(ctx, s, d, e) }))
			}
			synctest.Wait()
			require.Equal(t, 401, drv.WaitStats().Waiting)
			cancel()
			for _, done := range all {
				require.ErrorIs(t, <-done, context.Canceled)
			}
			require.NoError(t, forgotten.Close())
			synctest.Wait()
			require.Equal(t, 0, drv.WaitStats().Watchers)
		})
	}
	testgpu.WaitUntil(t, func() bool { return runtime.NumGoroutine() <= before })
}

// A wait that begins while the poller sleeps until a later time is not late.
func TestLaterWaitsInVirtualTime(t *testing.T) {
	for name, more := range map[string]func(w cuda.Waitable) error{
		"Synchronize": func(w cuda.Waitable) error { return w.Synchronize() },
		"Done":        func(w cuda.Waitable) error { return <-w.Done() },
		"WaitAny":     func(w cuda.Waitable) error { _, err := cuda.WaitAny(context.Background(), w); return err },
	} {
		t.Run(name, func(t *testing.T) {
			testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
				long, s := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
				early, late := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
				gpu.Run(long, time.Hour)
				require.NoError(t, late.Record(long))
				lateDone := late.Done()
				for _, after := range []time.Duration{0, time.Microsecond, time.Millisecond, time.Second, time.Minute} {
					time.Sleep(after)
					began := time.Now()
					gpu.Run(s, 10*time.Millisecond)
					require.NoError(t, early.Record(s))
					require.NoError(t, more(early))
					testgpu.OnTime(t, began, 10*time.Millisecond)
					gpu.Run(s, 10*time.Millisecond)
					require.NoError(t, more(s))
					testgpu.OnTime(t, began, 20*time.Millisecond)
				}
				// Of an event behind the one that is watched, and then instead of it.
				behind, err := long.RecordEvent(nil)
				require.NoError(t, err)
				defer behind.Close()
				behindDone := behind.Done()
				require.NoError(t, late.Close())
				require.ErrorIs(t, <-lateDone, cuda.ErrClosed)
				require.NoError(t, <-behindDone)
			})
		})
	}
}

// The poller, while it sleeps, keeps to no record that nobody waits for any more.
func TestGivenUpAndRecordedAgainInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s, long := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		first, second := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		began := time.Now()
		gpu.Run(s, 10*time.Second)
		require.NoError(t, first.Record(s))
		require.NoError(t, second.Record(s))
		gpu.Run(long, time.Hour)
		secondDone := second.Done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, first.SynchronizeContext(ctx), context.DeadlineExceeded)
		require.NoError(t, first.Record(long))
		require.NoError(t, <-secondDone)
		testgpu.OnTime(t, began, 10*time.Second)
		require.NoError(t, first.Synchronize())
		testgpu.OnTime(t, began, time.Hour)
	})
}

// What is freed while the device is busy holds up no clock, however much it is.
func TestFreeingInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{NoMemoryPools: true})
		drv, err := cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		begin := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			plain, err := cuda.Alloc[byte](d, 16)
			require.NoError(t, err)
			ordered, err := cuda.AllocAsync[byte](s, 16)
			require.NoError(t, err)
			pinned, err := cuda.AllocHost[byte](d, 16, nil)
			require.NoError(t, err)
			gpu.Run(s, time.Second)
			require.NoError(t, cuda.Copy[byte](s, ordered, pinned))
			require.NoError(t, ordered.Close())
			require.NoError(t, pinned.Close())
			wg.Go(func() {
				if err := plain.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, time.Since(begin), 3*time.Second)
		require.NoError(t, s.Close())
		synctest.Wait()
		time.Sleep(time.Second) // in which what is left is freed
		gpu.Check(t)
	})
}
