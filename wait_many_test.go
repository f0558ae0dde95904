package cuda_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
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
	second := newStream(t, d, nil)
	s := &scene{
		busy: newStream(t, d, nil), idle: newStream(t, d, nil),
		held: newEvent(t, nil), held2: newEvent(t, nil), done: newEvent(t, nil), done2: newEvent(t, nil),
		never: newEvent(t, nil), closed: newEvent(t, nil),
	}
	for _, e := range []*cuda.Event{s.done, s.done2, s.closed} {
		require.NoError(t, e.Record(s.idle))
		require.NoError(t, e.Synchronize())
	}
	require.NoError(t, s.closed.Close())
	s.release, s.other = block(t, s.busy), block(t, second)
	require.NoError(t, s.held.Record(s.busy))
	require.NoError(t, s.held2.Record(second))
	return s
}

func TestWaitAnyRules(t *testing.T) {
	rule(t, "06 WaitAny returns the index of what is done", 1, func(t *testing.T, b *backend) {
		s := newScene(t, b.dev())
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
			"an idle stream":          {[]cuda.Waitable{b.dev(), s.busy, s.idle}, 2, nil, ""},
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
		require.Zero(t, b.drv.WaitStats().Waiting)
	})

	rule(t, "06 WaitAny waits, and leaves nothing", 1, func(t *testing.T, b *backend) {
		s := newScene(t, b.dev())
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := started(func() error {
			which, err := cuda.WaitAny(ctx, s.held, s.held2, b.dev(), s.busy, s.held)
			return errors.Join(err, index(which, -1))
		})
		ended := started(func() error {
			which, err := cuda.WaitAny(t.Context(), b.dev(), s.held2, s.held2, s.held)
			return errors.Join(err, index(which, 3))
		})
		parked(t, b.drv, 9)
		cancel()
		require.ErrorIs(t, told(t, cancelled), context.Canceled)
		parked(t, b.drv, 4)
		notTold(t, ended)
		s.release()
		require.NoError(t, told(t, ended))
		nobodyWaits(t, b.drv)
		s.other()
		which, err := cuda.WaitAny(t.Context(), b.dev())
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
	rule(t, "06 WaitAll waits for all, or fails for the first", 1, func(t *testing.T, b *backend) {
		s := newScene(t, b.dev())
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
		require.Zero(t, b.drv.WaitStats().Waiting)

		ctx, cancel := context.WithCancel(t.Context())
		given := started(func() error { return cuda.WaitAll(ctx, s.done, s.held, s.held2, b.dev()) })
		all := started(func() error {
			return cuda.WaitAll(t.Context(), s.busy, s.held, s.held, s.done, s.held2, s.never, b.dev())
		})
		doomed := newEvent(t, nil)
		require.NoError(t, doomed.Record(s.busy))
		fails := started(func() error { return cuda.WaitAll(t.Context(), s.held, doomed, s.held2) })
		parked(t, b.drv, 3+5+3)
		cancel()
		require.ErrorIs(t, told(t, given), context.Canceled)
		require.NoError(t, doomed.Close())
		err := told(t, fails)
		require.ErrorIs(t, err, cuda.ErrClosed)
		require.ErrorContains(t, err, "number 1 of 3")
		parked(t, b.drv, 5)
		s.release()
		parked(t, b.drv, 2)
		notTold(t, all)
		s.other()
		require.NoError(t, told(t, all))
		nobodyWaits(t, b.drv)
	})

	rule(t, "06 what is waited for is settled when WaitAll is called", 1, func(t *testing.T, b *backend) {
		s := newScene(t, b.dev())
		all := started(func() error { return cuda.WaitAll(t.Context(), s.held, s.busy) })
		any := started(func() error { _, err := cuda.WaitAny(t.Context(), s.busy, s.held); return err })
		parked(t, b.drv, 4)
		require.NoError(t, s.busy.WaitStream(s.held2Stream(t, b.dev()))) // later work
		require.NoError(t, s.held.Record(s.busy))
		s.release()
		require.NoError(t, told(t, all))
		require.NoError(t, told(t, any))
		require.False(t, query(t, s.held))
		s.other()
		require.NoError(t, s.held.Synchronize())
	})
}

// held2Stream is a stream that waits for held2.
func (s *scene) held2Stream(t testing.TB, d *cuda.Device) *cuda.Stream {
	behind := newStream(t, d, nil)
	require.NoError(t, s.held2.Wait(behind))
	return behind
}

// What is waited for may be of several devices and of several drivers.
func TestWaitForWorkOfTwoDrivers(t *testing.T) {
	one, a := simulatedDevices(t, cudatest.Config{Devices: 2}, nil)
	two, b := simulatedDevices(t, cudatest.Config{}, nil)
	s, far, other := newStream(t, a.devices[0], nil), newStream(t, a.devices[1], nil), newStream(t, b.dev(), nil)
	for range 20 {
		release, releaseFar, releaseOther := one.Hold(s), one.Hold(far), two.Hold(other)
		e := newEvent(t, nil)
		require.NoError(t, e.Record(other))
		work := []cuda.Waitable{s, a.devices[1], e, other, b.dev(), far}
		all := started(func() error { return cuda.WaitAll(t.Context(), work...) })
		any := started(func() error {
			which, err := cuda.WaitAny(t.Context(), s, a.devices[1], e)
			return errors.Join(err, index(which, 2))
		})
		parked(t, a.drv, 3+2)
		parked(t, b.drv, 3+1)
		releaseOther()
		require.NoError(t, told(t, any))
		parked(t, b.drv, 0)
		parked(t, a.drv, 3)
		release()
		parked(t, a.drv, 2)
		releaseFar()
		require.NoError(t, told(t, all))
		require.NoError(t, e.Close())
	}
	nobodyWaits(t, a.drv)
	nobodyWaits(t, b.drv)
}

// A failure of the driver names the work, and matches the driver's code.
func TestWaitForSeveralFails(t *testing.T) {
	var bad driver.Event
	_, b := simulatedDevices(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventQuery
		api.EventQuery = func(e driver.Event) driver.Result {
			if e == bad {
				return driver.ErrorUnknown
			}
			return bare(e)
		}
	})
	s, fails := newScene(t, b.dev()), newEvent(t, nil)
	require.NoError(t, fails.Record(s.busy))
	bad = native(t, fails)
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
	nobodyWaits(t, b.drv)
}
