package cuda_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// wants fails the test unless the device has so many races to report.
func wants(t *testing.T, r *testgpu.Raced, races bool) {
	t.Helper()
	err := r.Device.Synchronize()
	if races {
		require.ErrorIs(t, err, cuda.ErrRace)
		return
	}
	require.NoError(t, err)
}

// refusing opens a GPU that refuses what it is asked for while refuse is true.
func refusing(t *testing.T) (r *testgpu.Raced, refuse *bool) {
	refuse = new(bool)
	return racing(t, func(api *driver.API) {
		launch, call := api.GraphLaunch, api.LaunchHostFunc
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			if *refuse {
				return driver.ErrorOutOfMemory
			}
			return launch(x, s)
		}
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			if *refuse {
				return driver.ErrorOutOfMemory
			}
			return call(s, f)
		}
	}), refuse
}

// A graph whose launch is refused uses nothing and calls nothing.
func TestRefusedGraphLaunchIsNoRace(t *testing.T) {
	r, refuse := refusing(t)
	ran := make(chan struct{}, 1)
	x := testgpu.Instantiate(t, testgpu.Capture(t, r.S1, func() {
		require.NoError(t, r.S1.LaunchHostFunc(func(error) { ran <- struct{}{} }))
		r.Fill(r.S1, r.X)
	}))
	*refuse = true
	require.Error(t, x.Launch(r.S1))
	*refuse = false
	r.Fill(r.S2, r.X)
	wants(t, r, false)
	require.NoError(t, x.Launch(r.S1))
	<-ran
	r.Fill(r.S2, r.X)
	wants(t, r, true)
}

func TestRacesBehindARefusedHostFunction(t *testing.T) {
	r, refuse := refusing(t)
	*refuse = true
	require.Error(t, r.S1.LaunchHostFunc(func(error) {}))
	*refuse = false
	r.Fill(r.S1, r.X)
	r.Fill(r.S2, r.X)
	wants(t, r, true)
}

// What the driver refuses to free is still there, and a stream whose capture's origin is
// destroyed does work again.
func TestRacesAfterARefusedFree(t *testing.T) {
	r := racing(t, nil)
	api := r.Device.Driver().API()
	testgpu.InContext(r.Device, func() driver.Result {
		p, _ := api.MemAlloc(64)
		s, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
		joined, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
		e, _ := api.EventCreate(driver.EventDisableTiming)
		require.Zero(t, api.StreamBeginCapture(s, driver.CaptureModeRelaxed))
		require.Zero(t, api.EventRecord(e, s))
		require.Zero(t, api.StreamWaitEvent(joined, e, 0))
		require.NotZero(t, api.MemFreeAsync(p, s))
		require.Zero(t, api.StreamDestroy(s))
		require.Zero(t, api.MemsetD32Async(p, 1, 16, joined))
		require.Zero(t, api.MemsetD32Async(p, 1, 16, r.S1.Handle()))
		require.Zero(t, api.CtxSynchronize())
		require.Zero(t, api.MemFree(p))
		require.Zero(t, api.EventDestroy(e))
		return api.StreamDestroy(joined)
	})
	wants(t, r, true)
}

// The host does not wait for a copy of no bytes.
func TestRaceBehindAnEmptyCopy(t *testing.T) {
	r := racing(t, nil)
	r.Fill(r.S1, r.X)
	require.NoError(t, cuda.Copy(r.S1, testgpu.Range(t, r.Y, 0, 0), testgpu.Range(t, r.Y, 8, 8)))
	r.Read(r.S2, r.X)
	wants(t, r, true)
}

// What a call does counts from before it returns.
func TestRacesOfSlowCalls(t *testing.T) {
	in, leave := make(chan struct{}), make(chan struct{})
	r := racing(t, func(api *driver.API) {
		call := api.StreamWriteValue32
		api.StreamWriteValue32 = func(s driver.Stream, addr driver.DevicePtr, v, flags uint32) driver.Result {
			result := call(s, addr, v, flags)
			close(in)
			<-leave
			return result
		}
	})
	w := testgpu.Alloc[uint32](t, r.Device, 1)
	require.NoError(t, cuda.Fill(r.S1, w, 0))
	r.Synchronize(r.S1)
	require.NoError(t, r.S2.WaitValue(w, 1))
	r.Fill(r.S1, r.X)
	wrote := testgpu.Go(func() error { return r.S1.WriteValue(w, 1) })
	<-in
	r.Synchronize(r.S2) // which has waited for the word, and so for the fill
	r.Read(r.S2, r.X)
	close(leave)
	require.NoError(t, testgpu.Receive(t, wrote))
	wants(t, r, false)
}

// A query that finds a stream idle says nothing of a host function that is being launched there.
func TestRacesOfASlowHostFunction(t *testing.T) {
	in, leave := make(chan struct{}), make(chan struct{})
	var slow sync.Once
	r := racing(t, func(api *driver.API) {
		call := api.LaunchHostFunc
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			slow.Do(func() {
				close(in)
				<-leave
			})
			return call(s, f)
		}
	})
	done := make(chan struct{})
	launched := testgpu.Go(func() error { return r.S2.LaunchHostFunc(func(error) { <-done }) })
	<-in
	testgpu.Query(t, r.S2)
	close(leave)
	require.NoError(t, testgpu.Receive(t, launched))
	r.Read(r.S2, r.X)
	r.Fill(r.S1, r.X)
	r.Synchronize(r.S1)
	close(done)
	wants(t, r, false)
}

// A function for races may end its goroutine, as t.FailNow does: the call goes on.
func TestOnRaceEndsItsGoroutine(t *testing.T) {
	r := racing(t, nil)
	r.Device.Driver().OnRace(func(string) { runtime.Goexit() })
	r.Fill(r.S1, r.X)
	r.Fill(r.S2, r.X)
	_, err := r.S2.Capture(func() error { return errors.ErrUnsupported })
	require.ErrorIs(t, err, errors.ErrUnsupported)
	wants(t, r, false)
}

// A word may be set back where the table does not see it, by another library.
func TestRacesBehindAWordThatOthersSetBack(t *testing.T) {
	var api *driver.API // which does not look for races
	r := racing(t, func(a *driver.API) { api = a })
	w := testgpu.Alloc[uint32](t, r.Device, 1)
	for range 2 {
		require.Zero(t, testgpu.InContext(r.Device, func() driver.Result {
			if result := api.MemsetD32Async(w.Pointer(), 0, 1, r.S1.Handle()); result != driver.Success {
				return result
			}
			return api.StreamSynchronize(r.S1.Handle())
		}))
		require.NoError(t, r.S2.WaitValue(w, 1))
		r.Read(r.S2, r.X)
		r.Fill(r.S1, r.X)
		require.NoError(t, r.S1.WriteValue(w, 1))
		wants(t, r, false)
	}
}

// The driver waits for copies to pageable memory, and so the host knows of what came before.
func TestRacesBehindACopyToPageableMemory(t *testing.T) {
	r := racing(t, nil)
	api := r.Device.Driver().API()
	r.Fill(r.S1, r.X)
	host := make([]byte, 64)
	require.Zero(t, testgpu.InContext(r.Device, func() driver.Result {
		return api.MemcpyDtoHAsync(unsafe.Pointer(&host[0]), r.X.Pointer(), 64, r.S1.Handle())
	}))
	r.Fill(r.S2, r.X)
	wants(t, r, false)
}
