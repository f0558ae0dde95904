package rules_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestClosingEndsWaits(t *testing.T) {
	type closer interface {
		cuda.Waitable
		Close() error
	}
	for name, make := range map[string]func(t testing.TB, s *cuda.Stream) closer{
		"an event": func(t testing.TB, s *cuda.Stream) closer {
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(s))
			return e
		},
		"a shared event": func(t testing.TB, s *cuda.Stream) closer {
			e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true})
			require.NoError(t, e.Record(s))
			return e
		},
		"a blocking event": func(t testing.TB, s *cuda.Stream) closer {
			e := testgpu.NewEvent(t, &cuda.EventOptions{Blocking: true})
			require.NoError(t, e.Record(s))
			return e
		},
		"a stream": func(_ testing.TB, s *cuda.Stream) closer { return s },
		"an external stream": func(t testing.TB, s *cuda.Stream) closer {
			x, err := s.Device().ExternalStream(s.Handle())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, x.Close()) })
			return x
		},
	} {
		testgpu.Rule(t, "24 closing ends waits: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			s := testgpu.NewStream(t, b.Device(), nil)
			release := testgpu.Hold(t, s)
			w, bystander := make(t, s), testgpu.NewEvent(t, nil)
			require.NoError(t, bystander.Record(s))
			others := append(testgpu.Waits(t, bystander), b.Device().Done())
			mine := testgpu.Waits(t, w)
			both := testgpu.Go(func() error {
				which, err := cuda.WaitAny(t.Context(), bystander, w)
				if which != 1 {
					err = errors.Join(err, fmt.Errorf("number %d", which))
				}
				return err
			})
			mine = append(mine, both, testgpu.Go(func() error { return cuda.WaitAll(t.Context(), bystander, w) }))
			testgpu.Parked(t, b.Driver, len(others)+len(mine)+2)
			require.NoError(t, w.Close())
			for _, done := range mine {
				require.ErrorIs(t, testgpu.Receive(t, done), cuda.ErrClosed)
			}
			for _, wait := range testgpu.WaitWays {
				require.ErrorIs(t, wait(t.Context(), w), cuda.ErrClosed)
			}
			require.Equal(t, len(others), b.Driver.WaitStats().Waiting)
			testgpu.NotReady(t, others...)
			release()
			for _, done := range others {
				require.NoError(t, testgpu.Receive(t, done))
			}
		})
	}
}

// Whoever closes something, or gives a wait up, does not wait for the poller, which
// may wait for the driver.
func TestClosingDoesNotWaitForThePoller(t *testing.T) {
	testgpu.Rule(t, "24 closing and cancelling beside a question that takes long", 1, func(t *testing.T, b *testgpu.Backend) {
		var v testgpu.Valve
		b = testgpu.Modified(t, b, v.Install)
		s, closing := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		release, releaseClosing := testgpu.Hold(t, s), testgpu.Hold(t, closing)
		asked, later, other := cuda.NewEvent(nil), cuda.NewEvent(nil), cuda.NewEvent(nil)
		for _, e := range []*cuda.Event{asked, later} {
			require.NoError(t, e.Record(s))
		}
		require.NoError(t, other.Record(closing))
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := []<-chan error{
			testgpu.Go(func() error { return asked.SynchronizeContext(ctx) }),
			testgpu.Go(func() error { return later.SynchronizeContext(ctx) }),
			testgpu.Go(func() error { return closing.SynchronizeContext(ctx) }),
			testgpu.Go(func() error { return b.Device().SynchronizeContext(ctx) }),
			testgpu.Go(func() error { _, err := cuda.WaitAny(ctx, asked, closing); return err }),
			testgpu.Go(func() error { return cuda.WaitAll(ctx, later, other) }),
		}
		closed := append(append(testgpu.Waits(t, asked), testgpu.Waits(t, later)...), append(testgpu.Waits(t, other), testgpu.Waits(t, closing)...)...)
		testgpu.Parked(t, b.Driver, len(closed)+len(cancelled)+2)
		open := v.Close(t, testgpu.Queries, testgpu.AnyEvent)
		testgpu.WaitUntil(t, func() bool { return v.Stopped.Load() == 1 })

		cancel()
		for _, done := range cancelled {
			require.ErrorIs(t, testgpu.Receive(t, done), context.Canceled)
		}
		for _, c := range []interface{ Close() error }{other, closing, later, asked} {
			require.NoError(t, testgpu.Receive(t, testgpu.Go(c.Close)))
		}
		for _, done := range closed {
			require.ErrorIs(t, testgpu.Receive(t, done), cuda.ErrClosed)
		}
		require.Zero(t, b.Driver.WaitStats().Waiting)
		open()
		release()
		releaseClosing()
		testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Events == 0 })
	})
}

// A stream that is closed while a wait for it is about to be left to the poller.
func TestClosedBeforeThePollerKnows(t *testing.T) {
	testgpu.Rule(t, "24 closing a stream whose wait still asks by itself", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, wait := range testgpu.WaitWays {
			var v testgpu.Valve
			own := testgpu.Modified(t, b, v.Install)
			s, err := own.Device().NewStream(nil)
			require.NoError(t, err)
			release := testgpu.Hold(t, s)
			open := v.Close(t, testgpu.Queries, testgpu.AnyEvent)
			done := testgpu.Go(func() error { return wait(t.Context(), s) })
			testgpu.WaitUntil(t, func() bool { return v.Stopped.Load() == 1 })
			require.NoError(t, s.Close())
			open()
			require.ErrorIs(t, testgpu.Receive(t, done), cuda.ErrClosed)
			release()
		}
	})
}

// everywhere begins waits of all kinds for s, its device and an event on it.
func everywhere(t testing.TB, s *cuda.Stream) (all []<-chan error) {
	e, later := cuda.NewEvent(nil), cuda.NewEvent(nil)
	require.NoError(t, e.Record(s))
	require.NoError(t, later.Record(s))
	for _, w := range []cuda.Waitable{e, later, s, s.Device()} {
		all = append(all, testgpu.Waits(t, w)...)
	}
	return all
}

func lostWaits(t *testing.T, d *cuda.Device, fail func(s *cuda.Stream)) {
	drv := d.Driver()
	drv.OnCleanupError(func(error) {})
	var all []<-chan error
	var releases []func()
	for range 3 {
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		e, err := s.RecordEvent(nil) // done before the failure
		require.NoError(t, err)
		require.NoError(t, e.Synchronize())
		releases = append(releases, testgpu.HoldLost(t, s))
		if len(releases) == 1 {
			fail(s)
		}
		all = append(all, everywhere(t, s)...)
	}
	testgpu.Parked(t, drv, len(all))
	releases[0]() // the others stay busy
	for _, done := range all {
		require.ErrorIs(t, testgpu.Receive(t, done), cuda.ErrDeviceLost)
	}
	testgpu.NoWaits(t, drv)
	for _, release := range releases {
		release()
	}
}

func TestLostDeviceEndsItsWaits(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{Devices: 2})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	lost, err := drv.OpenDevice(0)
	require.NoError(t, err)
	fine, err := drv.OpenDevice(1)
	require.NoError(t, err)
	s, err := fine.NewStream(nil)
	require.NoError(t, err)
	release := gpu.Hold(s)
	others := everywhere(t, s)
	testgpu.Parked(t, drv, len(others))
	e := cuda.NewEvent(nil)
	require.NoError(t, e.Record(s))

	// A wait for work of both receives the error of the one.
	ls, err := lost.NewStream(nil)
	require.NoError(t, err)
	releaseLost := testgpu.HoldLost(t, ls)
	gpu.Fault(ls, driver.ErrorIllegalAddress)
	l, err := ls.RecordEvent(nil)
	require.NoError(t, err)
	all := testgpu.Go(func() error { return cuda.WaitAll(t.Context(), e, ls) })
	one := testgpu.Go(func() error {
		_, err := cuda.WaitAny(t.Context(), e, l)
		return err
	})
	testgpu.Parked(t, drv, len(others)+4)
	releaseLost()
	require.ErrorIs(t, testgpu.Receive(t, one), driver.ErrorIllegalAddress)
	require.ErrorIs(t, testgpu.Receive(t, all), driver.ErrorIllegalAddress)
	testgpu.NotReady(t, others...)
	release()
	for _, done := range others {
		require.NoError(t, testgpu.Receive(t, done))
	}
	testgpu.NoWaits(t, drv)
}

func TestLostDevicesWaits(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	lostWaits(t, d, func(s *cuda.Stream) { gpu.Fault(s, driver.ErrorLaunchFailed) })
}

func TestLostDevicesWaitsReal(t *testing.T) { testgpu.InAnotherProcess(t, "TestLostDevicesWaitsChild") }

func TestLostDevicesWaitsChild(t *testing.T) { testgpu.Trapped(t, lostWaits) }
