package stress_test

import (
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

// slowFrees is a device, without the simulation's clock, whose MemFree does not return
// until release is called, as on a device that is busy.
func slowFrees(t *testing.T) (b *testgpu.Backend, inside *atomic.Int32, most *atomic.Int32, hold func() (release func())) {
	inside, most = new(atomic.Int32), new(atomic.Int32)
	var gate atomic.Pointer[chan struct{}]
	_, b = testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		api.Sleep = nil
		bare := api.MemFree
		api.MemFree = func(p driver.DevicePtr) driver.Result {
			now := inside.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			if c := gate.Load(); c != nil {
				<-*c
			}
			inside.Add(-1)
			return bare(p)
		}
	})
	return b, inside, most, func() func() {
		c := make(chan struct{})
		gate.Store(&c)
		return sync.OnceFunc(func() { gate.Store(nil); close(c) })
	}
}

// Closing memory of Alloc waits for the device inside the driver. However many close, one
// of them holds a thread there.
func TestManyClosesHoldFewThreads(t *testing.T) {
	skipShort(t)
	const n = 3000
	b, inside, most, hold := slowFrees(t)
	var all []*cuda.Buffer[byte]
	for range n {
		buf, err := cuda.Alloc[byte](b.Device(), 16)
		require.NoError(t, err)
		all = append(all, buf)
	}
	release := hold()
	testgpu.ReleaseAtEnd(t, release)
	var entered atomic.Int32
	var closing sync.WaitGroup
	for _, buf := range all {
		closing.Go(func() {
			entered.Add(1)
			if err := buf.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	testgpu.WaitUntil(t, func() bool { return entered.Load() == n && inside.Load() == 1 })
	runtime.Gosched()
	release()
	testgpu.Returns(t, closing.Wait)
	require.EqualValues(t, 1, most.Load())
}

// Closing memory of a busy device delays no other call: no wait for other work, and no end
// of a wait whose context is over.
func TestClosesDelayNobody(t *testing.T) {
	skipShort(t)
	b, inside, _, hold := slowFrees(t)
	s := testgpu.NewStream(t, b.Device(), nil)
	buf, err := cuda.Alloc[byte](b.Device(), 16)
	require.NoError(t, err)
	pooled, err := cuda.AllocAsync[byte](s, 16)
	require.NoError(t, err)
	release := hold()
	testgpu.ReleaseAtEnd(t, release)
	closing := testgpu.Go(buf.Close)
	testgpu.WaitUntil(t, func() bool { return inside.Load() == 1 })

	require.NoError(t, cuda.Fill(s, pooled, 1))
	require.NoError(t, pooled.Close()) // so that a wait for s makes a call of its own
	require.NoError(t, testgpu.Receive(t, testgpu.Go(s.Synchronize)))
	require.NoError(t, testgpu.Receive(t, testgpu.Go(b.Device().Synchronize)))
	require.NoError(t, testgpu.Receive(t, b.Device().Done()))
	g, err := s.Capture(func() error { return nil })
	require.NoError(t, err)
	require.NoError(t, g.Close())
	another, err := cuda.AllocAsync[byte](s, 16)
	require.NoError(t, err)
	require.NoError(t, another.Close())

	time.Sleep(time.Millisecond)
	require.EqualValues(t, 1, inside.Load())
	release()
	require.NoError(t, testgpu.Receive(t, closing))
}
