package native

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// A use of memory that is under way when its stream's numbers are used up is not one that the
// home has waited for long ago.
func TestRenumberBesideAUse(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	in, out := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	fill := api.MemsetD8Async
	api.MemsetD8Async = func(p driver.DevicePtr, v uint8, n uint64, s driver.Stream) driver.Result {
		if hold.CompareAndSwap(true, false) {
			close(in)
			<-out
		}
		return fill(p, v, n, s)
	}
	require.NoError(t, api.Complete())
	require.Equal(t, driver.Success, api.Init(0))
	d := NewDriver(&api, func(what string, err error) { t.Error(what, err) }).NewDevice(0, 0, nil)
	_, err := d.Open()
	require.NoError(t, err)
	home, user := newStream(t, d), newStream(t, d)
	user.gate.Begin(1<<39 - 3)
	m, err := home.AllocAsync(64)
	require.NoError(t, err)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, home.WaitStream(user))
	require.NoError(t, home.WaitStream(user))
	release := gpu.Hold(cudatest.Handle(user.Native))
	hold.Store(true)
	filled, recorded := make(chan error, 1), make(chan error, 1)
	go func() { filled <- user.Fill(m, m.Addr, 1, 1, 64) }()
	<-in
	var e Event
	go func() { recorded <- e.Record(user) }() // the numbers are used up
	time.Sleep(5 * time.Millisecond)
	close(out)
	require.NoError(t, <-filled)
	require.NoError(t, <-recorded)
	require.NoError(t, m.Close())
	require.EqualValues(t, 1, d.Driver.Live.Buffers.Load(), "user is not done with it")
	release()
	for d.Driver.Live.Buffers.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	e.Close()
}
