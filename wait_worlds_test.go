package cuda_test

import (
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
