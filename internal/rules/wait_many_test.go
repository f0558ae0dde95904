package rules_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// scene is what the rules of WaitAny and WaitAll name.
type scene struct {
	busy, idle     *cuda.Stream
	held, held2    *cuda.Event // not done
	done, done2    *cuda.Event
	never, closed  *cuda.Event
	nilEvent       *cuda.Event
	release, other func() // of held and busy, of held2
}

func newScene(t testing.TB, d *cuda.Device) *scene {
	second := testgpu.NewStream(t, d, nil)
	s := &scene{
		busy: testgpu.NewStream(t, d, nil), idle: testgpu.NewStream(t, d, nil),
		held: testgpu.NewEvent(t, nil), held2: testgpu.NewEvent(t, nil), done: testgpu.NewEvent(t, nil), done2: testgpu.NewEvent(t, nil),
		never: testgpu.NewEvent(t, nil), closed: testgpu.NewEvent(t, nil),
	}
	for _, e := range []*cuda.Event{s.done, s.done2, s.closed} {
		require.NoError(t, e.Record(s.idle))
		require.NoError(t, e.Synchronize())
	}
	require.NoError(t, s.closed.Close())
	s.release, s.other = testgpu.Hold(t, s.busy), testgpu.Hold(t, second)
	require.NoError(t, s.held.Record(s.busy))
	require.NoError(t, s.held2.Record(second))
	return s
}

func TestWaitAnyRules(t *testing.T) {
	testgpu.Rule(t, "06 WaitAny returns the index of what is done", 1, func(t *testing.T, b *testgpu.Backend) {
		s := newScene(t, b.Device())
		for name, c := range map[string]struct {
			work []cuda.Waitable
			want int
			err  error
			says string
		}{
			"nothing":                 {nil, -1, cuda.ErrInvalid, "wait for any: invalid argument: there is nothing"},
			"an interface of nothing": {[]cuda.Waitable{s.held, nil}, 1, cuda.ErrInvalid, "wait for any, number 1 of 2"},
			"a nil event":             {[]cuda.Waitable{s.held, s.held2, s.nilEvent}, 2, cuda.ErrInvalid, "number 2 of 3"},
			"a nil stream":            {[]cuda.Waitable{s.held, (*cuda.Stream)(nil)}, 1, cuda.ErrInvalid, "number 1 of 2"},
			"a nil device":            {[]cuda.Waitable{s.held, (*cuda.Device)(nil)}, 1, cuda.ErrInvalid, "number 1 of 2"},
			"a closed one":            {[]cuda.Waitable{s.held, s.closed, s.held2}, 1, cuda.ErrClosed, "number 1 of 3"},
			"one that is done":        {[]cuda.Waitable{s.held, s.busy, s.done}, 2, nil, ""},
			"two that are done":       {[]cuda.Waitable{s.held, s.done, s.done2}, 1, nil, ""},
			"one never recorded":      {[]cuda.Waitable{s.held, s.never}, 1, nil, ""},
			"an idle stream":          {[]cuda.Waitable{b.Device(), s.busy, s.idle}, 2, nil, ""},
			"the same twice":          {[]cuda.Waitable{s.held, s.done, s.done}, 1, nil, ""},
		} {
			which, err := cuda.WaitAny(t.Context(), c.work...)
			require.Equal(t, c.want, which, name)
			require.ErrorIs(t, err, c.err, name)
			if c.says != "" {
				require.ErrorContains(t, err, c.says, name)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		which, err := cuda.WaitAny(gone, s.held, s.done)
		require.NoError(t, err, "what is done needs no waiting")
		require.Equal(t, 1, which)
		which, err = cuda.WaitAny(gone, s.held, s.busy)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, -1, which)
		require.Zero(t, b.Driver.WaitStats().Waiting)
	})

	testgpu.Rule(t, "06 WaitAny waits, and leaves nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		s := newScene(t, b.Device())
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := testgpu.Go(func() error {
			which, err := cuda.WaitAny(ctx, s.held, s.held2, b.Device(), s.busy, s.held)
			return errors.Join(err, index(which, -1))
		})
		ended := testgpu.Go(func() error {
			which, err := cuda.WaitAny(t.Context(), b.Device(), s.held2, s.held2, s.held)
			return errors.Join(err, index(which, 3))
		})
		testgpu.Parked(t, b.Driver, 9)
		cancel()
		require.ErrorIs(t, testgpu.Receive(t, cancelled), context.Canceled)
		testgpu.Parked(t, b.Driver, 4)
		testgpu.NotReady(t, ended)
		s.release()
		require.NoError(t, testgpu.Receive(t, ended))
		testgpu.NoWaits(t, b.Driver)
		s.other()
		which, err := cuda.WaitAny(t.Context(), b.Device())
		require.NoError(t, err)
		require.Zero(t, which)
	})
}

// index is an error unless got is wanted.
func index(got, want int) error {
	if got != want {
		return errors.New("the wrong index")
	}
	return nil
}

func TestWaitAllRules(t *testing.T) {
	testgpu.Rule(t, "06 WaitAll waits for all, or fails for the first", 1, func(t *testing.T, b *testgpu.Backend) {
		s := newScene(t, b.Device())
		gone, cancelled := context.WithCancel(t.Context())
		cancelled()
		for name, c := range map[string]struct {
			ctx  context.Context
			work []cuda.Waitable
			err  error
			says string
		}{
			"nothing":                          {t.Context(), nil, nil, ""},
			"an interface of nothing":          {t.Context(), []cuda.Waitable{s.held, nil}, cuda.ErrInvalid, "wait for all, number 1 of 2"},
			"a nil stream":                     {t.Context(), []cuda.Waitable{s.held, (*cuda.Stream)(nil)}, cuda.ErrInvalid, "number 1 of 2"},
			"a closed one":                     {t.Context(), []cuda.Waitable{s.done, s.held, s.held2, s.closed}, cuda.ErrClosed, "number 3 of 4"},
			"all done":                         {t.Context(), []cuda.Waitable{s.done, s.never, s.idle, s.done2, s.done}, nil, ""},
			"all done, and the context too":    {gone, []cuda.Waitable{s.done, s.never, s.idle, s.done2}, nil, ""},
			"one not done, the context is":     {gone, []cuda.Waitable{s.done, s.held}, context.Canceled, "wait for all"},
			"nothing, and the context is done": {gone, nil, nil, ""},
		} {
			err := cuda.WaitAll(c.ctx, c.work...)
			require.ErrorIs(t, err, c.err, name)
			if c.says != "" {
				require.ErrorContains(t, err, c.says, name)
			}
		}
		require.Zero(t, b.Driver.WaitStats().Waiting)

		ctx, cancel := context.WithCancel(t.Context())
		given := testgpu.Go(func() error { return cuda.WaitAll(ctx, s.done, s.held, s.held2, b.Device()) })
		all := testgpu.Go(func() error {
			return cuda.WaitAll(t.Context(), s.busy, s.held, s.held, s.done, s.held2, s.never, b.Device())
		})
		closing := testgpu.NewEvent(t, nil)
		require.NoError(t, closing.Record(s.busy))
		fails := testgpu.Go(func() error { return cuda.WaitAll(t.Context(), s.held, closing, s.held2) })
		testgpu.Parked(t, b.Driver, 3+5+3)
		cancel()
		require.ErrorIs(t, testgpu.Receive(t, given), context.Canceled)
		require.NoError(t, closing.Close())
		err := testgpu.Receive(t, fails)
		require.ErrorIs(t, err, cuda.ErrClosed)
		require.ErrorContains(t, err, "number 1 of 3")
		testgpu.Parked(t, b.Driver, 5)
		s.release()
		testgpu.Parked(t, b.Driver, 2)
		testgpu.NotReady(t, all)
		s.other()
		require.NoError(t, testgpu.Receive(t, all))
		testgpu.NoWaits(t, b.Driver)
	})

	testgpu.Rule(t, "06 what is waited for is settled when WaitAll is called", 1, func(t *testing.T, b *testgpu.Backend) {
		s := newScene(t, b.Device())
		all := testgpu.Go(func() error { return cuda.WaitAll(t.Context(), s.held, s.busy) })
		any := testgpu.Go(func() error { _, err := cuda.WaitAny(t.Context(), s.busy, s.held); return err })
		testgpu.Parked(t, b.Driver, 4)
		require.NoError(t, s.busy.WaitStream(s.held2Stream(t, b.Device()))) // later work
		require.NoError(t, s.held.Record(s.busy))
		s.release()
		require.NoError(t, testgpu.Receive(t, all))
		require.NoError(t, testgpu.Receive(t, any))
		require.False(t, testgpu.Query(t, s.held))
		s.other()
		require.NoError(t, s.held.Synchronize())
	})
}

// held2Stream is a stream that waits for held2.
func (s *scene) held2Stream(t testing.TB, d *cuda.Device) *cuda.Stream {
	behind := testgpu.NewStream(t, d, nil)
	require.NoError(t, s.held2.Wait(behind))
	return behind
}

// What is waited for may be of several devices and of several drivers.
func TestWaitForWorkOfTwoDrivers(t *testing.T) {
	one, a := testgpu.Simulated(t, cudatest.Config{Devices: 2}, nil)
	two, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s, far, other := testgpu.NewStream(t, a.Devices[0], nil), testgpu.NewStream(t, a.Devices[1], nil), testgpu.NewStream(t, b.Device(), nil)
	for range 20 {
		release, releaseFar, releaseOther := one.Hold(s), one.Hold(far), two.Hold(other)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(other))
		work := []cuda.Waitable{s, a.Devices[1], e, other, b.Device(), far}
		all := testgpu.Go(func() error { return cuda.WaitAll(t.Context(), work...) })
		any := testgpu.Go(func() error {
			which, err := cuda.WaitAny(t.Context(), s, a.Devices[1], e)
			return errors.Join(err, index(which, 2))
		})
		testgpu.Parked(t, a.Driver, 3+2)
		testgpu.Parked(t, b.Driver, 3+1)
		releaseOther()
		require.NoError(t, testgpu.Receive(t, any))
		testgpu.Parked(t, b.Driver, 0)
		testgpu.Parked(t, a.Driver, 3)
		release()
		testgpu.Parked(t, a.Driver, 2)
		releaseFar()
		require.NoError(t, testgpu.Receive(t, all))
		require.NoError(t, e.Close())
	}
	testgpu.NoWaits(t, a.Driver)
	testgpu.NoWaits(t, b.Driver)
}

// A failure of the driver names the work, and matches the driver's code.
func TestWaitForSeveralFails(t *testing.T) {
	var bad driver.Event
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventQuery
		api.EventQuery = func(e driver.Event) driver.Result {
			if e == bad {
				return driver.ErrorUnknown
			}
			return bare(e)
		}
	})
	s, fails := newScene(t, b.Device()), testgpu.NewEvent(t, nil)
	require.NoError(t, fails.Record(s.busy))
	bad = testgpu.NativeEvent(t, fails)
	which, err := cuda.WaitAny(t.Context(), s.held, fails)
	require.Equal(t, 1, which)
	require.ErrorIs(t, err, driver.ErrorUnknown)
	require.ErrorContains(t, err, "wait for any, number 1 of 2: CUDA_ERROR_UNKNOWN")
	err = cuda.WaitAll(t.Context(), s.done, s.held, fails)
	require.ErrorIs(t, err, driver.ErrorUnknown)
	require.ErrorContains(t, err, "number 2 of 3")
	bad = 0 // others may get it now
	s.release()
	s.other()
	testgpu.NoWaits(t, b.Driver)
}
