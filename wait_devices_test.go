package cuda_test

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
)

// A driver that takes long to answer about one device delays nobody who waits for
// another, with any number of waits for the first.
func TestDevicesAreWatchedApart(t *testing.T) {
	rule(t, "06 devices do not wait for each other", 2, func(t *testing.T, b *backend) {
		var v valve
		b = changed(t, b, v.fit)
		s, far := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		release := block(t, s)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		slow := append(waits(t, e), e.Done(), s.Done())
		parked(t, b.drv, len(slow))
		slowest := native(t, e)
		open := v.close(t, questions, func(q driver.Event) bool { return q == slowest })
		for range 20 { // some of these are stuck in their own question
			slow = append(slow, started(e.Synchronize))
		}
		becomes(t, func() bool { return v.stopped.Load() > 1 })
		for range 10 {
			one := block(t, far)
			f := newEvent(t, nil)
			require.NoError(t, f.Record(far))
			before := b.drv.WaitStats().Parked
			all := append(waits(t, f), waits(t, far)...)
			all = append(all, waits(t, b.devices[1])...)
			becomes(t, func() bool { return b.drv.WaitStats().Parked-before >= uint64(len(all)) })
			one()
			for _, done := range all {
				require.NoError(t, told(t, done))
			}
		}
		notTold(t, slow...)
		open()
		release()
		for _, done := range slow {
			require.NoError(t, told(t, done))
		}
		nobodyWaits(t, b.drv)
	})
}

// Each device has a poller of its own.
func TestManyDevices(t *testing.T) {
	const n = 20
	gpu, b := simulatedDevices(t, cudatest.Config{Devices: n}, nil)
	var all []cuda.Waitable
	var releases []func()
	for _, d := range b.devices {
		s := newStream(t, d, nil)
		releases = append(releases, gpu.Hold(s))
		e := newEvent(t, nil)
		require.NoError(t, e.Record(s))
		all = append(all, e, s, d)
	}
	var waiting [n][]<-chan error
	for i, w := range all {
		waiting[i/3] = append(waiting[i/3], waits(t, w)...)
	}
	parked(t, b.drv, 3*n*len(ways))
	require.Equal(t, n, b.drv.WaitStats().Watchers)
	for i := range n {
		releases[i]()
		for _, done := range waiting[i] {
			require.NoError(t, told(t, done))
		}
		require.Equal(t, 3*(n-1-i)*len(ways), b.drv.WaitStats().Waiting)
	}
	nobodyWaits(t, b.drv)
}

// oldDriver has no event for all work of a device: it is waited for by
// cuCtxSynchronize. most is how many calls of that there were at the same time.
func oldDriver(t testing.TB, devices int) (gpu *cudatest.GPU, b *backend, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	gpu, b = simulatedDevices(t, cudatest.Config{Devices: devices, DriverVersion: 12040}, func(api *driver.API) {
		bare := api.CtxSynchronize
		api.CtxSynchronize = func() driver.Result {
			calls.Add(1)
			return bare()
		}
	})
	require.Contains(t, b.drv.Missing(), "cuCtxRecordEvent")
	return gpu, b, calls
}

func TestOldDriversDeviceWaits(t *testing.T) {
	gpu, b, calls := oldDriver(t, 2)
	goroutines, began := runtime.NumGoroutine(), threads()
	var releases []func()
	for _, d := range b.devices {
		releases = append(releases, gpu.Hold(newStream(t, d, nil)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var going [2][]<-chan error
	var givenUp []<-chan error
	for i := range 1000 {
		d := b.devices[i%2]
		switch i / 2 % 4 {
		case 0:
			going[i%2] = append(going[i%2], d.Done())
		case 1:
			going[i%2] = append(going[i%2], started(d.Synchronize))
		case 2:
			going[i%2] = append(going[i%2], started(func() error { return cuda.WaitAll(t.Context(), d) }))
		default:
			givenUp = append(givenUp, started(func() error { return d.SynchronizeContext(ctx) }))
		}
	}
	parked(t, b.drv, 1000)
	cancel()
	for _, done := range givenUp {
		require.ErrorIs(t, told(t, done), context.Canceled)
	}
	for i, release := range releases {
		notTold(t, going[i][:10]...)
		release()
		for _, done := range going[i] {
			require.NoError(t, told(t, done))
		}
	}
	require.Zero(t, calls.Load(), "cuCtxSynchronize would end captures")
	require.LessOrEqual(t, threads()-began, 16)
	nobodyWaits(t, b.drv)
	becomes(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A wait is for the work that was there when it began, also if another wait, for
// less, is under way.
func TestOldDriversDeviceWaitsAreForAllWork(t *testing.T) {
	gpu, b, _ := oldDriver(t, 1)
	first, second := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
	releaseFirst := gpu.Hold(first)
	early := waits(t, b.dev())
	parked(t, b.drv, len(early))
	releaseSecond := gpu.Hold(second)
	late := waits(t, b.dev())
	parked(t, b.drv, len(early)+len(late))
	releaseFirst()
	notTold(t, late...)
	releaseSecond()
	for _, done := range append(early, late...) {
		require.NoError(t, told(t, done))
	}
	require.NoError(t, b.dev().Synchronize(), "and the next")
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
	all := waits(t, d)
	parked(t, drv, len(all))
	release()
	for _, done := range all {
		err := told(t, done)
		require.ErrorIs(t, err, cuda.ErrDeviceLost)
		require.ErrorIs(t, err, driver.ErrorLaunchFailed)
	}
	require.ErrorIs(t, <-d.Done(), cuda.ErrDeviceLost)
	nobodyWaits(t, drv)
}

// A device that is waited for all the time, by many, on an old driver.
func TestOldDriversDeviceWaitsInLoops(t *testing.T) {
	gpu, b, _ := oldDriver(t, 1)
	s := newStream(t, b.dev(), nil)
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
				if err := b.dev().Synchronize(); err != nil {
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
	returns(t, wg.Wait)
}
