package rules_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A driver that takes long to answer about one device delays no wait for
// another, with any number of waits for the first.
func TestDevicesArePolledApart(t *testing.T) {
	testgpu.Rule(t, "06 devices do not wait for each other", 2, func(t *testing.T, b *testgpu.Backend) {
		var v testgpu.Valve
		b = testgpu.Modified(t, b, v.Install)
		s, far := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		release := testgpu.Hold(t, s)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		slow := append(testgpu.Waits(t, e), e.Done(), s.Done())
		testgpu.Parked(t, b.Driver, len(slow))
		slowest := testgpu.NativeEvent(t, e)
		open := v.Close(t, testgpu.Queries, func(q driver.Event) bool { return q == slowest })
		for range 20 { // some of these are stuck in their own question
			slow = append(slow, testgpu.Go(e.Synchronize))
		}
		testgpu.WaitUntil(t, func() bool { return v.Stopped.Load() > 1 })
		for range 10 {
			one := testgpu.Hold(t, far)
			f := testgpu.NewEvent(t, nil)
			require.NoError(t, f.Record(far))
			before := b.Driver.WaitStats().Parked
			all := append(testgpu.Waits(t, f), testgpu.Waits(t, far)...)
			all = append(all, testgpu.Waits(t, b.Devices[1])...)
			testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Parked-before >= uint64(len(all)) })
			one()
			for _, done := range all {
				require.NoError(t, testgpu.Receive(t, done))
			}
		}
		testgpu.NotReady(t, slow...)
		open()
		release()
		for _, done := range slow {
			require.NoError(t, testgpu.Receive(t, done))
		}
		testgpu.NoWaits(t, b.Driver)
	})
}

// Each device has a poller of its own.
func TestManyDevices(t *testing.T) {
	const n = 20
	gpu, b := testgpu.Simulated(t, cudatest.Config{Devices: n}, nil)
	var all []cuda.Waitable
	var releases []func()
	for _, d := range b.Devices {
		s := testgpu.NewStream(t, d, nil)
		releases = append(releases, gpu.Hold(s))
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		all = append(all, e, s, d)
	}
	var waiting [n][]<-chan error
	for i, w := range all {
		waiting[i/3] = append(waiting[i/3], testgpu.Waits(t, w)...)
	}
	testgpu.Parked(t, b.Driver, 3*n*len(testgpu.WaitWays))
	require.Equal(t, n, b.Driver.WaitStats().Watchers)
	for i := range n {
		releases[i]()
		for _, done := range waiting[i] {
			require.NoError(t, testgpu.Receive(t, done))
		}
		require.Equal(t, 3*(n-1-i)*len(testgpu.WaitWays), b.Driver.WaitStats().Waiting)
	}
	testgpu.NoWaits(t, b.Driver)
}

// oldDriver has no event for all work of a device: it is waited for by
// cuCtxSynchronize. most is how many calls of that there were at the same time.
func oldDriver(t testing.TB, devices int) (gpu *cudatest.GPU, b *testgpu.Backend, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	gpu, b = testgpu.Simulated(t, cudatest.Config{Devices: devices, DriverVersion: 12040}, func(api *driver.API) {
		bare := api.CtxSynchronize
		api.CtxSynchronize = func() driver.Result {
			calls.Add(1)
			return bare()
		}
	})
	require.Contains(t, b.Driver.Missing(), "cuCtxRecordEvent")
	return gpu, b, calls
}

func TestOldDriversDeviceWaits(t *testing.T) {
	gpu, b, calls := oldDriver(t, 2)
	goroutines, began := runtime.NumGoroutine(), testgpu.Threads()
	var releases []func()
	for _, d := range b.Devices {
		releases = append(releases, gpu.Hold(testgpu.NewStream(t, d, nil)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var going [2][]<-chan error
	var givenUp []<-chan error
	for i := range 1000 {
		d := b.Devices[i%2]
		switch i / 2 % 4 {
		case 0:
			going[i%2] = append(going[i%2], d.Done())
		case 1:
			going[i%2] = append(going[i%2], testgpu.Go(d.Synchronize))
		case 2:
			going[i%2] = append(going[i%2], testgpu.Go(func() error { return cuda.WaitAll(t.Context(), d) }))
		default:
			givenUp = append(givenUp, testgpu.Go(func() error { return d.SynchronizeContext(ctx) }))
		}
	}
	testgpu.Parked(t, b.Driver, 1000)
	cancel()
	for _, done := range givenUp {
		require.ErrorIs(t, testgpu.Receive(t, done), context.Canceled)
	}
	for i, release := range releases {
		testgpu.NotReady(t, going[i][:10]...)
		release()
		for _, done := range going[i] {
			require.NoError(t, testgpu.Receive(t, done))
		}
	}
	require.Zero(t, calls.Load(), "cuCtxSynchronize would end captures")
	require.LessOrEqual(t, testgpu.Threads()-began, 16)
	testgpu.NoWaits(t, b.Driver)
	testgpu.WaitUntil(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A wait is for the work that was there when it began, also if another wait, for
// less, is under way.
func TestOldDriversDeviceWaitsAreForAllWork(t *testing.T) {
	gpu, b, _ := oldDriver(t, 1)
	first, second := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
	releaseFirst := gpu.Hold(first)
	early := testgpu.Waits(t, b.Device())
	testgpu.Parked(t, b.Driver, len(early))
	releaseSecond := gpu.Hold(second)
	late := testgpu.Waits(t, b.Device())
	testgpu.Parked(t, b.Driver, len(early)+len(late))
	releaseFirst()
	testgpu.NotReady(t, late...)
	releaseSecond()
	for _, done := range append(early, late...) {
		require.NoError(t, testgpu.Receive(t, done))
	}
	require.NoError(t, b.Device().Synchronize(), "and the next")
}

func TestOldDriversDeviceWaitsFail(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{DriverVersion: 12040})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	release := gpu.Hold(s)
	gpu.Fault(s, driver.ErrorLaunchFailed)
	all := testgpu.Waits(t, d)
	testgpu.Parked(t, drv, len(all))
	release()
	for _, done := range all {
		err := testgpu.Receive(t, done)
		require.ErrorIs(t, err, cuda.ErrDeviceLost)
		require.ErrorIs(t, err, driver.ErrorLaunchFailed)
	}
	require.ErrorIs(t, <-d.Done(), cuda.ErrDeviceLost)
	testgpu.NoWaits(t, drv)
}

// A device that is waited for all the time, by many, on an old driver.
func TestOldDriversDeviceWaitsInLoops(t *testing.T) {
	gpu, b, _ := oldDriver(t, 1)
	s := testgpu.NewStream(t, b.Device(), nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				gpu.Run(s, 1000)
				e, err := s.RecordEvent(nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.Device().Synchronize(); err != nil {
					t.Error(err)
				}
				if done, err := e.Query(); !done || err != nil {
					t.Errorf("ended before the work: %v, %v", done, err)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	testgpu.Returns(t, wg.Wait)
}
