package cuda_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

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
		pools bool
		n     int
		do    func(t *testing.T, gpu *cudatest.GPU, s *cuda.Stream, calls *busy)
	}{
		"the events of waits": {true, 100, func(t *testing.T, gpu *cudatest.GPU, s *cuda.Stream, _ *busy) {
			release := gpu.Hold(s)
			var all []<-chan error
			for range 1024 + 100 { // of which that many are kept
				all = append(all, s.Done())
			}
			release()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
		}},
		"memory without a pool": {false, 100, func(t *testing.T, _ *cudatest.GPU, s *cuda.Stream, _ *busy) {
			for range 100 {
				b, err := cuda.AllocAsync[byte](s, 16)
				require.NoError(t, err)
				require.NoError(t, b.Close())
			}
		}},
		"forgotten memory": {true, 100, func(t *testing.T, _ *cudatest.GPU, s *cuda.Stream, _ *busy) {
			for range 100 {
				_, err := cuda.Alloc[byte](s.Device(), 16)
				require.NoError(t, err)
			}
		}},
		"host memory in use": {true, 1000, func(t *testing.T, gpu *cudatest.GPU, s *cuda.Stream, calls *busy) {
			release := gpu.Hold(s)
			to, err := cuda.Alloc[byte](s.Device(), 16)
			require.NoError(t, err)
			for range 100 {
				h, err := cuda.AllocHost[byte](s.Device(), 16, nil)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy[byte](s, to, h))
				require.NoError(t, h.Close())
			}
			testgpu.WaitUntil(t, func() bool { return calls.calls.Load() > 1000 }) // questions
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
			api.EventQuery = func(e driver.Event) driver.Result { calls.pass(); return bare.EventQuery(e) }
			drv, err := cuda.OpenDriver(&api)
			require.NoError(t, err)
			d, err := drv.OpenDevice(0)
			require.NoError(t, err)
			s, err := d.NewStream(nil)
			require.NoError(t, err)
			calls.slow.Store(true)
			c.do(t, gpu, s, &calls)
			require.NoError(t, s.Close())
			testgpu.WaitUntil(t, func() bool { runtime.GC(); return len(gpu.Problems()) == 0 })
			require.GreaterOrEqual(t, int(calls.calls.Load()), c.n)
			require.LessOrEqual(t, calls.most.Load(), int32(10)) // 8 who wait, and a watcher
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
