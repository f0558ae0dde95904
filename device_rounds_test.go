package cuda_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// Waits for an old driver's device that begin as others end are neither lost nor served
// by two calls at once.
func TestRoundsFollowEachOther(t *testing.T) {
	var now, most atomic.Int32
	_, b := simulatedDevices(t, cudatest.Config{DriverVersion: 12040}, func(api *driver.API) {
		api.CtxSynchronize = func() driver.Result {
			most.Store(max(most.Load(), now.Add(1)))
			runtime.Gosched()
			now.Add(-1)
			return driver.Success
		}
	})
	end := time.Now().Add(500 * time.Millisecond)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				select {
				case err := <-b.dev().Done():
					if err != nil {
						t.Error(err)
					}
				case <-time.After(10 * time.Second):
					t.Error("was not told")
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
}
