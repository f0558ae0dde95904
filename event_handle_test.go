package cuda

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
)

// Handle returns when the event has left its place among the records of its stream,
// for everybody who calls it.
func TestEveryHandleWaitsForTheDisplacement(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	defer s.Close()
	release := gpu.Hold(s)
	e := NewEvent(nil)
	defer e.Close()
	require.NoError(t, e.Record(s))
	done := e.Done()
	d.watcher.mu.Lock()
	returned := make(chan bool, 2)
	for range 2 {
		go func() { returned <- e.Handle() != 0 }()
		for !e.h.Load().covers.void.Load() {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(20 * time.Millisecond)
	require.Empty(t, returned)
	d.watcher.mu.Unlock()
	require.True(t, <-returned)
	require.True(t, <-returned)
	release()
	require.NoError(t, <-done)
}
