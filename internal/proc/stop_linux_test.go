package proc

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After stop has returned nothing is called, and stop waits for a call that is
// under way. Callbacks may watch and stop others.
func TestStopRaces(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		for range 20 {
			c := play(t, "waits", 0)
			var wg sync.WaitGroup
			for i := range 30 {
				var stopped, inside atomic.Bool
				call := func() {
					inside.Store(true)
					defer inside.Store(false)
					if stopped.Load() {
						t.Error("called after stop has returned")
					}
					if stop, err := w.watch(c.id, func() {}, func() {}); err == nil {
						stop()
					}
				}
				stop, err := w.watch(c.id, call, call)
				require.NoError(t, err)
				for range 2 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond / 2)
						stop()
						stopped.Store(true)
						if inside.Load() {
							t.Error("stop did not wait")
						}
					})
				}
			}
			c.kill(t)
			wg.Wait()
		}
		idle(t, w)
	})
}

func TestStopWaits(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "waits", 0)
		called, release := make(chan bool), make(chan bool)
		stop, err := w.watch(c.id, func() { close(called); <-release }, func() { t.Error("gone") })
		require.NoError(t, err)
		c.kill(t)
		<-called
		stopped := make(chan bool)
		go func() {
			stop()
			close(stopped)
		}()
		select {
		case <-stopped:
			t.Error("stop did not wait")
		case <-time.After(3 * interval):
		}
		close(release)
		<-stopped
		idle(t, w)
	})
}
