package driver_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// However goroutines move between threads, a call stays on one.
func TestWrappersKeepTheThread(t *testing.T) {
	var mu sync.Mutex
	contexts, modes := map[int]driver.Context{}, map[int]driver.CaptureMode{} // by thread
	api := new(thread).table(t)
	api.CtxPushCurrent = func(c driver.Context) driver.Result {
		mu.Lock()
		defer mu.Unlock()
		contexts[syscall.Gettid()] += c
		return driver.Success
	}
	api.CtxPopCurrent = func() (driver.Context, driver.Result) {
		mu.Lock()
		defer mu.Unlock()
		contexts[syscall.Gettid()] = 0
		return 0, driver.Success
	}
	api.ThreadExchangeStreamCaptureMode = func(mode driver.CaptureMode) (driver.CaptureMode, driver.Result) {
		mu.Lock()
		defer mu.Unlock()
		was := modes[syscall.Gettid()]
		modes[syscall.Gettid()] = mode
		return was, driver.Success
	}
	api.EventQuery = func(e driver.Event) driver.Result {
		time.Sleep(time.Microsecond) // the goroutine would go on elsewhere
		mu.Lock()
		defer mu.Unlock()
		if tid := syscall.Gettid(); contexts[tid] != driver.Context(e) || modes[tid] != driver.CaptureModeRelaxed {
			return driver.ErrorInvalidContext
		}
		return driver.Success
	}
	var all sync.WaitGroup
	for g := range 8 {
		made := api.Bound(driver.Context(g + 1)).Quiet()
		if g%2 != 0 {
			made = api.Quiet().Bound(driver.Context(g + 1))
		}
		all.Go(func() {
			for range 100 {
				if r := made.EventQuery(driver.Event(g + 1)); r != driver.Success {
					t.Error(r)
					return
				}
			}
		})
	}
	all.Wait()
	for tid := range contexts {
		require.Zero(t, contexts[tid])
		require.Zero(t, modes[tid])
	}
}
