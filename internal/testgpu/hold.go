package testgpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Hold keeps s busy until release is called, on real and simulated GPUs alike: the stream
// waits for a word of pinned memory that the host sets. It needs no handle of the stream,
// which would be another kind of stream to the library then, and no guess at how long work
// takes. The end of the test releases all streams that it holds
// before its cleanups wait for anything.
func Hold(t testing.TB, s *cuda.Stream) (release func()) {
	t.Helper()
	word, release := holdWord(t, s)
	t.Cleanup(func() {
		release()
		require.NoError(t, s.Device().Synchronize())
		require.NoError(t, word.Close())
	})
	ReleaseAtEnd(t, release)
	return release
}

// HoldLost is [Hold] on a device that will be lost, where nothing can be cleaned up.
func HoldLost(t testing.TB, s *cuda.Stream) (release func()) {
	t.Helper()
	_, release = holdWord(t, s)
	return release
}

func holdWord(t testing.TB, s *cuda.Stream) (word *cuda.HostBuffer[uint32], release func()) {
	t.Helper()
	word, err := cuda.AllocHost[uint32](s.Device(), 1, nil)
	require.NoError(t, err)
	p := &word.Slice()[0]
	atomic.StoreUint32(p, 0)
	require.NoError(t, s.WaitValue(word, 1))
	return word, func() { atomic.StoreUint32(p, 1) }
}

// releases are what each running test must release before it waits for anything at its end.
var releases = struct {
	sync.Mutex
	of map[testing.TB][]func()
}{of: map[testing.TB][]func(){}}

// ReleaseAtEnd sees to it that release is called when the test ends, together with all
// others of the test and before the cleanups that were registered earlier: these may wait
// for any of what is released.
func ReleaseAtEnd(t testing.TB, release func()) {
	releases.Lock()
	defer releases.Unlock()
	releases.of[t] = append(releases.of[t], release)
	t.Cleanup(func() {
		releases.Lock()
		defer releases.Unlock()
		for _, release := range releases.of[t] {
			release()
		}
		delete(releases.of, t)
	})
}

// InContext calls f on a locked thread on which the primary context of d is current.
func InContext(d *cuda.Device, f func() driver.Result) driver.Result {
	api := d.Driver().API()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, r := api.DevicePrimaryCtxRetain(driver.Device(d.Index()))
	if r != driver.Success {
		return r
	}
	defer api.DevicePrimaryCtxRelease(driver.Device(d.Index()))
	if r := api.CtxPushCurrent(c); r != driver.Success {
		return r
	}
	defer api.CtxPopCurrent()
	return f()
}
