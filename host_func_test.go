package cuda_test

import (
	"errors"
	"runtime"
	"sync"
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

// failedCalls launches host functions that a failing device will not call, and
// checks which errors they receive. fail enqueues what the device fails with on s.
func failedCalls(t *testing.T, d *cuda.Device, fail func(s *cuda.Stream)) {
	d.Driver().OnCleanupError(func(error) {})
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	const n = 10
	var received [n + 2]atomic.Int32 // the last two are of a graph
	var wg sync.WaitGroup
	tell := func(i int) func(error) {
		return func(err error) {
			if !errors.Is(err, cuda.ErrDeviceLost) {
				t.Errorf("function %d received %v", i, err)
			}
			received[i].Add(1)
			wg.Done()
		}
	}
	g, err := s.Capture(func() error {
		return errors.Join(s.LaunchHostFunc(tell(n)), s.LaunchHostFunc(tell(n+1)))
	})
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)
	release := testgpu.HoldLost(t, s)
	fail(s)
	for i := range n {
		wg.Add(1)
		require.NoError(t, s.LaunchHostFunc(tell(i)))
	}
	for range 3 {
		wg.Add(2)
		require.NoError(t, x.Launch(s))
	}
	require.NoError(t, x.Close(), "its launches are in flight")
	require.NoError(t, g.Close())
	began := time.Now()
	release()
	wg.Wait()
	require.Less(t, time.Since(began), time.Second)
	require.Error(t, s.LaunchHostFunc(func(error) { t.Error("called, though it was refused") }))
	time.Sleep(3 * testgpu.Soon)
	for i := range received {
		want := int32(1)
		if i >= n {
			want = 3
		}
		require.Equal(t, want, received[i].Load(), i)
	}
}

func TestHostFuncsOfAFailingDevice(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	failedCalls(t, d, func(s *cuda.Stream) { gpu.Fault(s, driver.ErrorLaunchFailed) })
}

func TestHostFuncsOfAFailingDeviceReal(t *testing.T) {
	testgpu.InAnotherProcess(t, "TestHostFuncsOfAFailingDeviceChild")
}

func TestHostFuncsOfAFailingDeviceChild(t *testing.T) { testgpu.Trapped(t, failedCalls) }

// A function receives the failure of its own device only: another device's go on.
func TestHostFuncsOfTheOtherDeviceGoOn(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{Devices: 2})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	var streams []*cuda.Stream
	for i := range 2 {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		streams = append(streams, s)
	}
	gpu.Fault(streams[0], driver.ErrorIllegalAddress)
	release := gpu.Hold(streams[1])
	lost, fine := make(chan error, 1), make(chan error, 1)
	require.NoError(t, streams[1].LaunchHostFunc(func(err error) { fine <- err }))
	if err := streams[0].LaunchHostFunc(func(err error) { lost <- err }); err == nil {
		require.ErrorIs(t, <-lost, driver.ErrorIllegalAddress)
	}
	time.Sleep(2 * testgpu.Soon)
	require.Empty(t, fine)
	release()
	require.NoError(t, <-fine)
}

// A launch that the driver refuses, while the device is found to be lost, calls
// nothing: the error is the caller's to handle.
func TestRefusedHostFuncIsNotCalled(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var failing atomic.Bool
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			failing.Store(true)
			close(entered)
			<-leave
			return driver.ErrorLaunchFailed
		}
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
			if failing.Load() {
				return 0, driver.ErrorLaunchFailed
			}
			return bare.EventCreate(flags)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	refused := make(chan error, 1)
	go func() { refused <- s.LaunchHostFunc(func(error) { t.Error("called") }) }()
	<-entered
	time.Sleep(3 * testgpu.Soon)
	close(leave)
	require.ErrorIs(t, <-refused, cuda.ErrDeviceLost)
	time.Sleep(3 * testgpu.Soon)
}

// A driver that calls a function of a graph after all, when it has received
// the failure, does not call it twice.
func TestLateCallIsNotASecondOne(t *testing.T) {
	var failing atomic.Bool
	var native driver.HostFunc
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			native = f
			return bare.LaunchHostFunc(s, f)
		}
		api.GraphLaunch = func(driver.GraphExec, driver.Stream) driver.Result {
			failing.Store(true)
			return driver.Success
		}
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
			if failing.Load() {
				return 0, driver.ErrorLaunchFailed
			}
			return bare.EventCreate(flags)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	received := make(chan error, 2)
	x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() { require.NoError(t, s.LaunchHostFunc(func(err error) { received <- err })) }))
	require.NoError(t, x.Launch(s))
	require.ErrorIs(t, <-received, cuda.ErrDeviceLost)
	native.Call()
	require.Empty(t, received)
	failing.Store(false)
}

// What a function refers to is garbage when it has been called for the last time.
func TestHostFuncsAreForgotten(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	var collected atomic.Int32
	launch := func() {
		big := new([1 << 16]int)
		runtime.AddCleanup(big, func(int) { collected.Add(1) }, 0)
		require.NoError(t, s.LaunchHostFunc(func(error) { big[0]++ }))
	}
	launch()
	require.NoError(t, s.Synchronize())
	testgpu.CollectUntil(t, func() bool { return collected.Load() == 1 })

	g, err := s.Capture(func() error { launch(); return nil })
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, x.Launch(s))
	require.NoError(t, x.Close())
	require.NoError(t, s.Synchronize())
	testgpu.CollectUntil(t, func() bool { return collected.Load() == 2 })
}

// Nothing runs while no call is owed, and not long after.
func TestHostFuncsLeaveNoGoroutine(t *testing.T) {
	var asked atomic.Int32
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
			asked.Add(1)
			return bare.EventCreate(flags)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	before := runtime.NumGoroutine()
	release := gpu.Hold(s)
	for range 100 {
		require.NoError(t, s.LaunchHostFunc(func(error) {}))
	}
	testgpu.CollectUntil(t, func() bool { return asked.Load() >= 2 })
	release()
	require.NoError(t, s.Synchronize())
	testgpu.CollectUntil(t, func() bool { return runtime.NumGoroutine() <= before })
	time.Sleep(2 * testgpu.Soon)
	last := asked.Load()
	time.Sleep(3 * testgpu.Soon)
	require.Equal(t, last, asked.Load(), "the device is still asked")
	release = gpu.Hold(s)
	require.NoError(t, s.LaunchHostFunc(func(error) {}))
	testgpu.CollectUntil(t, func() bool { return asked.Load() > last })
	release()
}

func TestHostFuncInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s := testgpu.NewStream(t, d, nil)
		began := time.Now()
		gpu.Run(s, time.Minute)
		called := make(chan time.Duration, 1)
		require.NoError(t, s.LaunchHostFunc(func(error) {
			called <- time.Since(began)
			time.Sleep(time.Hour)
		}))
		require.Equal(t, time.Minute, <-called)
		require.NoError(t, s.Synchronize())
		require.Equal(t, time.Minute+time.Hour, time.Since(began))
	})
}

// What a function that was never called leaves does not keep a bubble from
// ending.
func TestBubbleEndsWithAHostFuncPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		drv, err := cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		gpu.Hold(d.DefaultStream())
		require.NoError(t, d.DefaultStream().LaunchHostFunc(func(error) { t.Error("called") }))
		time.Sleep(time.Second)
	})
}

// A device that fails is noticed in virtual time too.
func TestFailingDeviceInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		drv, err := cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		s := d.DefaultStream()
		gpu.Run(s, time.Minute)
		gpu.Fault(s, driver.ErrorLaunchFailed)
		began := time.Now()
		received := make(chan error, 1)
		require.NoError(t, s.LaunchHostFunc(func(err error) { received <- err }))
		require.ErrorIs(t, <-received, cuda.ErrDeviceLost)
		require.Less(t, time.Since(began), time.Minute+time.Second)
	})
}
