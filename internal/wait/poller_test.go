package wait

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDoneAtOnce(t *testing.T) {
	var p Poller
	var o Owner
	s := new(stream)
	s.done.Store(5)
	pt := s.at(5)
	require.NoError(t, p.Wait(background, pt, &o, true))
	require.NoError(t, p.Wait(background, pt, nil, false))
	require.NoError(t, get(t, notified(&p, pt, &o)))
	done, err := p.TryFast(pt)
	require.True(t, done)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(background)
	cancel()
	require.NoError(t, p.Wait(ended, pt, &o, true), "what is done needs no waiting")
	require.Equal(t, Stats{Queries: 5}, p.Stats())

	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = p.Wait(background, pt, &o, true)
		_, _ = p.TryFast(pt)
		var unparked Owner
		unparked.End(nil)
	}))
}

func TestTryFast(t *testing.T) {
	var p Poller
	s := new(stream)
	pt := s.at(1)
	done, err := p.TryFast(pt)
	require.False(t, done)
	require.NoError(t, err)
	require.EqualValues(t, fastPolls, pt.polls.Load())

	failed := errors.New("failed")
	_, err = p.TryFast(&free{poll: func() (bool, error) { return false, failed }})
	require.ErrorIs(t, err, failed)

	require.NoError(t, p.Wait(background, &free{poll: func() (bool, error) { // beside another
		done, err := p.TryFast(&free{poll: func() (bool, error) {
			inner, err := p.TryFast(pt)
			require.False(t, inner)
			require.NoError(t, err)
			return true, nil
		}})
		return done, err
	}}, nil, false))
	require.EqualValues(t, fastPolls, pt.polls.Load())

	wait := start(&p, background, s.at(2), nil)
	parked(t, &p, 1)
	_, _ = p.TryFast(pt)
	require.EqualValues(t, fastPolls, pt.polls.Load(), "somebody waits")
	s.done.Store(2)
	require.NoError(t, get(t, wait))
	rest(t, &p)
}

// A failure says nothing about other points.
func TestFailures(t *testing.T) {
	var p Poller
	s := new(stream)
	var fails atomic.Uint64
	failed := errors.New("failed")
	var waits []<-chan error
	const n = 100
	for i := range uint64(n) {
		m := s.at(i)
		waits = append(waits, notified(&p, &free{place: m.Place, poll: func() (bool, error) {
			switch done := s.done.Load() >= 1; {
			case done && (i == 0 || i == 7 || i == n-1 || fails.Load() == 1):
				return false, failed
			default:
				return done && i < 50, nil
			}
		}}, nil))
	}
	require.Equal(t, n, p.Stats().Waiting)
	s.done.Store(1)
	require.ErrorIs(t, get(t, waits[0]), failed)
	for i := 1; i < 50; i++ {
		err := get(t, waits[i])
		require.True(t, err == nil || i == 7 && err == failed, "%d: %v", i, err)
	}
	waiting(t, waits[60])
	fails.Store(1)
	for _, w := range waits[50:] {
		require.ErrorIs(t, get(t, w), failed)
	}
	rest(t, &p)
}

func TestCancel(t *testing.T) {
	check := goes(t)
	var p Poller
	s := new(stream)
	ended, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, p.Wait(ended, s.at(1), nil, true), ErrCancelled)
	require.Zero(t, p.Stats().Parked)

	ctx, cancel := context.WithCancel(background)
	wait := started(func() error { return p.Wait(ctx, s.at(1), nil, true) })
	parked(t, &p, 1)
	cancel()
	require.ErrorIs(t, get(t, wait), ErrCancelled)
	rest(t, &p)
	require.EqualValues(t, 1, p.Stats().Cancelled)

	check()
}

func TestEnd(t *testing.T) {
	check := goes(t)
	var p Poller
	s := new(stream)
	s.done.Store(1)
	var before Owner
	require.False(t, before.Ended())
	before.End(nil)
	require.True(t, before.Ended())
	require.ErrorIs(t, p.Wait(background, s.at(1), &before, true), ErrEnded)
	require.ErrorIs(t, get(t, notified(&p, s.at(9), &before)), ErrEnded)

	var while, other Owner
	shared := s.at(9)
	var waits []<-chan error
	for range 100 { // for the same point and for several
		waits = append(waits, notified(&p, shared, &while), start(&p, background, shared, &while), notified(&p, s.at(20), &while))
	}
	stay := []<-chan error{notified(&p, shared, &other), start(&p, background, s.at(20), nil)}
	parked(t, &p, 302)
	while.End(&p)
	require.Equal(t, 2, p.Stats().Waiting)
	for _, w := range waits {
		require.ErrorIs(t, get(t, w), ErrEnded)
	}
	while.End(&p)
	for _, w := range stay {
		waiting(t, w)
	}
	s.done.Store(20)
	for _, w := range stay {
		require.NoError(t, get(t, w))
	}
	other.End(&p) // after its waits
	rest(t, &p)
	require.EqualValues(t, 302, p.Stats().Woken)
	check()
}

// An owner that ends its waits between the first poll of one and its parking ends it too.
func TestEndBeforeParking(t *testing.T) {
	var p Poller
	var o Owner
	pt := &free{poll: func() (bool, error) { o.End(&p); return false, nil }}
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	require.ErrorIs(t, p.Wait(ctx, pt, &o, false), ErrEnded)
	o = Owner{}
	var told error
	p.Notify(pt, &o, func(err error) { told = err }) // it is told before Notify returns
	require.ErrorIs(t, told, ErrEnded)
	rest(t, &p)
}

// Who ends or gives up does not wait for the poller, which may have to wait for an answer.
func TestEndBesideAQuestionThatTakesLong(t *testing.T) {
	check := goes(t)
	var p Poller
	s := new(stream)
	var o Owner
	gate, in := make(chan struct{}), make(chan struct{}, 100)
	var shut atomic.Bool
	m := s.at(1)
	slow := &free{place: m.Place, poll: func() (bool, error) {
		if shut.Load() {
			in <- struct{}{}
			<-gate
		}
		return false, nil
	}}
	ctx, cancel := context.WithCancel(background)
	ended := []<-chan error{notified(&p, slow, &o), start(&p, background, slow, &o)}
	cancelled := []<-chan error{start(&p, ctx, slow, nil), start(&p, ctx, s.at(2), nil), started(func() error {
		_, err := All(ctx, []Pending{{Poller: &p, Point: slow}, {Poller: &p, Point: s.at(3)}})
		return err
	})}
	parked(t, &p, 6)
	shut.Store(true)
	<-in
	cancel()
	for _, w := range cancelled {
		require.ErrorIs(t, get(t, w), ErrCancelled)
	}
	o.End(&p)
	for _, w := range ended {
		require.ErrorIs(t, get(t, w), ErrEnded)
	}
	require.Zero(t, p.Stats().Waiting)
	close(gate)
	rest(t, &p)
	check()
}

// An answer about a point that others record counts only for waits that began before the
// question.
func TestRecordedAgain(t *testing.T) {
	var p Poller
	gate, in := make(chan struct{}), make(chan struct{})
	var stage atomic.Int32
	pt := &free{poll: func() (bool, error) {
		switch stage.Load() {
		case 1: // the former record is done
			stage.Store(2)
			in <- struct{}{}
			<-gate
			return true, nil
		case 3:
			return true, nil
		}
		return false, nil
	}}
	early := notified(&p, pt, nil)
	parked(t, &p, 1)
	stage.Store(1)
	<-in
	late := notified(&p, pt, nil) // it has been recorded again
	close(gate)
	require.NoError(t, get(t, early))
	waiting(t, late)
	stage.Store(3)
	require.NoError(t, get(t, late))
	rest(t, &p)
}

func TestWake(t *testing.T) {
	var p Poller
	p.Wake() // nobody waits
	f := new(flag)
	w := notified(&p, f, nil)
	time.Sleep(20 * time.Millisecond) // old waits are asked seldom
	before := f.polls.Load()
	for range 100 {
		p.Wake()
		n := f.polls.Load()
		becomes(t, func() bool { return f.polls.Load() > n })
	}
	require.GreaterOrEqual(t, f.polls.Load()-before, int64(100))
	f.done.Store(true)
	require.NoError(t, get(t, w))
	rest(t, &p)
}

// A notification may call anything of the package.
func TestNotifyFromANotification(t *testing.T) {
	check := goes(t)
	var p Poller
	var o Owner
	s := new(stream)
	done := make(chan error, 10)
	for range 3 {
		p.Notify(s.at(1), &o, func(error) {
			p.Notify(s.at(2), &o, func(err error) { done <- err })
			if p.Stats().Woken >= 3 {
				o.End(&p)
			}
			p.Wake()
		})
	}
	s.done.Store(1)
	for range 3 {
		require.ErrorIs(t, get(t, done), ErrEnded)
	}
	rest(t, &p)
	check()
}
