package native_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing races with every other use: each call works or says closed.
func TestCloseRaces(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	other := testgpu.NewStream(t, d, nil)
	for range 200 {
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		e := cuda.NewEvent(nil)
		var wg sync.WaitGroup
		use := func(f func() error) {
			wg.Go(func() {
				for range 20 {
					if err := f(); err != nil && !errors.Is(err, cuda.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		use(func() error { return e.Record(s) })
		use(func() error { _, err := e.Query(); return err })
		use(func() error { return e.Wait(other) })
		use(func() error { return other.WaitStream(s) })
		use(func() error { return s.WaitStream(other) })
		use(e.Synchronize)
		use(s.Synchronize)
		use(func() error { return <-e.Done() })
		for range 2 {
			wg.Go(func() { _ = e.Close(); _ = s.Close() })
		}
		wg.Wait()
	}
}

// busy is a driver function that takes a while and counts who is in it.
type busy struct {
	slow            atomic.Bool
	in, most, calls atomic.Int32
}

func (c *busy) pass() {
	if !c.slow.Load() {
		return
	}
	now := c.in.Add(1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	time.Sleep(100 * time.Microsecond)
	c.in.Add(-1)
	c.calls.Add(1)
}

// However much is to be destroyed, freed, or asked for at a time, few threads are in the
// driver for it.
func TestFewDestroyAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		pools   bool
		queries bool // are slow and counted too
		n       int  // calls at least
		do      func(t *testing.T, gpu *cudatest.GPU, s *cuda.Stream, calls *busy)
	}{
		"events that are not used again": {true, false, 100, func(t *testing.T, _ *cudatest.GPU, s *cuda.Stream, _ *busy) {
			for range 200 {
				e := testgpu.Unpooled()
				require.NoError(t, e.Record(s))
				require.NoError(t, e.Close())
			}
			require.NoError(t, s.Synchronize())
		}},
		"memory without a pool": {false, false, 100, func(t *testing.T, _ *cudatest.GPU, s *cuda.Stream, _ *busy) {
			for range 100 {
				b, err := cuda.AllocAsync[byte](s, 16)
				require.NoError(t, err)
				require.NoError(t, b.Close())
			}
		}},
		"forgotten memory": {true, false, 100, func(t *testing.T, _ *cudatest.GPU, s *cuda.Stream, _ *busy) {
			for range 100 {
				_, err := cuda.Alloc[byte](s.Device(), 16)
				require.NoError(t, err)
			}
		}},
		"host memory in use": {true, true, 200, func(t *testing.T, gpu *cudatest.GPU, s *cuda.Stream, calls *busy) {
			release := gpu.Hold(s)
			to, err := cuda.Alloc[byte](s.Device(), 16)
			require.NoError(t, err)
			for range 100 {
				h, err := cuda.AllocHost[byte](s.Device(), 16, nil)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy[byte](s, to, h))
				require.NoError(t, h.Close())
			}
			testgpu.WaitUntil(t, func() bool { return calls.calls.Load() > 200 })
			release()
			require.NoError(t, s.Synchronize())
			require.NoError(t, to.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls busy
			gpu := cudatest.New(cudatest.Config{NoMemoryPools: !c.pools})
			bare, api := gpu.API(), *gpu.API()
			api.EventDestroy = func(e driver.Event) driver.Result { calls.pass(); return bare.EventDestroy(e) }
			api.MemFree = func(p driver.DevicePtr) driver.Result { calls.pass(); return bare.MemFree(p) }
			if c.queries {
				api.EventQuery = func(e driver.Event) driver.Result { calls.pass(); return bare.EventQuery(e) }
			}
			drv, err := cuda.OpenDriver(&api)
			require.NoError(t, err)
			d, err := drv.OpenDevice(0)
			require.NoError(t, err)
			s, err := d.NewStream(nil)
			require.NoError(t, err)
			calls.slow.Store(true)
			c.do(t, gpu, s, &calls)
			require.NoError(t, s.Close())
			testgpu.CollectUntil(t, func() bool { return len(gpu.Problems()) == 0 && int(calls.calls.Load()) >= c.n })
			require.LessOrEqual(t, calls.most.Load(), int32(10)) // 8 callers, and a poller
		})
	}
}

// An event that was waited for keeps nothing of the wait: neither the others that it was
// for, nor, through them, what those had.
func TestEventsForgetTheirWaits(t *testing.T) {
	const n = 50
	var destroyed atomic.Int32
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventDestroy
		api.EventDestroy = func(e driver.Event) driver.Result { destroyed.Add(1); return bare(e) }
	})
	s, idle := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
	release := gpu.Hold(s)
	var marks []*cuda.Event // which live on
	first, done := s.Done(), make(chan error, n)
	for range n {
		mark := testgpu.NewEvent(t, nil)
		require.NoError(t, mark.Record(s))
		marks = append(marks, mark)
		go func() {
			e := cuda.NewEvent(nil)
			err := e.Record(idle)
			e.Handle() // so that the native event will be destroyed, and not kept
			if err == nil {
				err = cuda.WaitAll(context.Background(), mark, s, e)
			}
			_ = e.Close()
			done <- err
		}()
	}
	testgpu.Parked(t, b.Driver, 1+2*n)
	last := s.Done()
	release()
	for range n {
		require.NoError(t, testgpu.Receive(t, done))
	}
	require.NoError(t, testgpu.Receive(t, first))
	require.NoError(t, testgpu.Receive(t, last))
	testgpu.NoWaits(t, b.Driver)
	testgpu.CollectUntil(t, func() bool { return destroyed.Load() == n })
	runtime.KeepAlive(marks)
}

// The failure of a destruction that no Close can return reaches the hook, and
// that the process is ending is no failure.
func TestLastReleaseDestroys(t *testing.T) {
	for answer, reported := range map[driver.Result]bool{driver.ErrorInvalidHandle: true, driver.ErrorDeinitialized: false} {
		entered, leave := make(chan struct{}), make(chan struct{})
		_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
			bare := *api
			api.StreamQuery = func(s driver.Stream) driver.Result {
				close(entered)
				<-leave
				return bare.StreamQuery(s)
			}
			api.StreamDestroy = func(s driver.Stream) driver.Result { bare.StreamDestroy(s); return answer }
		})
		var errs []error
		d.Driver().OnCleanupError(func(err error) { errs = append(errs, err) })
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		done := make(chan error)
		go func() {
			_, err := s.Query()
			done <- err
		}()
		<-entered
		require.NoError(t, s.Close(), "the call in the driver still holds it")
		require.Equal(t, 1, d.Driver().Stats().Streams)
		close(leave)
		require.NoError(t, <-done)
		require.Zero(t, d.Driver().Stats().Streams)
		if reported {
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], answer)
		} else {
			require.Empty(t, errs)
		}
	}
}

// The garbage collector's closing ends no capture, and keeps no other cleanup waiting
// for a device.
func TestCollectedObjectsEndNoCapture(t *testing.T) {
	var relaxed, strict atomic.Int32
	gpu, d := testgpu.SimulatedDevice(t, func(table *driver.API) {
		bare := *table
		table.EventDestroy = func(e driver.Event) driver.Result {
			mode, _ := bare.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			bare.ThreadExchangeStreamCaptureMode(mode)
			if mode == driver.CaptureModeRelaxed {
				relaxed.Add(1)
			} else {
				strict.Add(1)
			}
			return bare.EventDestroy(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	release := gpu.Hold(s)
	func() {
		_, err := cuda.Alloc[uint8](d, 1) // to be freed when the device is idle
		require.NoError(t, err)
		_, err = s.RecordEvent(testgpu.Unpooled())
		require.NoError(t, err)
	}()
	other := new([16]int)
	collected := make(chan struct{})
	runtime.AddCleanup(other, func(c chan struct{}) { close(c) }, collected)
	testgpu.CollectUntil(t, func() bool { return relaxed.Load() == 1 })
	require.Zero(t, strict.Load())
	select {
	case <-collected:
	case <-time.After(5 * time.Second):
		t.Fatal("another cleanup waits for the device")
	}
	release()
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Buffers == 0 })
}
