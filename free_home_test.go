package cuda_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// A stream whose queue is full blocks the driver's call that frees memory in its order. That
// delays no frees of other streams.
func TestFreesOfOneHomeDoNotDelayAnothers(t *testing.T) {
	for blocked := range 2 { // whichever is tried first
		t.Run(fmt.Sprint(blocked), func(t *testing.T) {
			var full atomic.Uint64
			var freed atomic.Int32
			room := make(chan struct{})
			_, b := simulatedDevices(t, cudatest.Config{}, func(api *driver.API) {
				bare := api.MemFreeAsync
				api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result {
					if uint64(s) == full.Load() {
						<-room
					}
					defer freed.Add(1)
					return bare(p, s)
				}
			})
			user := newStream(t, b.dev(), nil)
			release := block(t, user)
			releasedAtEnd(t, func() { close(room) })
			for i := range 2 {
				home := newStream(t, b.dev(), nil)
				m, err := cuda.AllocAsync[uint32](home, 4)
				require.NoError(t, err)
				require.NoError(t, user.WaitStream(home))
				require.NoError(t, cuda.Fill(user, m, 1))
				require.NoError(t, m.Close())
				if i == blocked {
					full.Store(uint64(home.Handle()))
				}
			}
			release()
			becomes(t, func() bool { return freed.Load() == 1 })
		})
	}
}
