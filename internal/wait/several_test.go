package wait

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNothing(t *testing.T) {
	_, err := All(background, nil)
	require.NoError(t, err)
	i, err := Any(background, nil)
	require.NoError(t, err)
	require.Equal(t, -1, i)
}

// What comes after a point that becomes done while it is polled may have nothing to wait for.
func TestNothingAfterAShortWait(t *testing.T) {
	polls := 0
	short := Pending{Poller: new(Poller), Point: &free{poll: func() (bool, error) { polls++; return polls > 1, nil }}}
	_, err := All(background, []Pending{short, {}, {}})
	require.NoError(t, err)
}

func TestSeveralAtOnce(t *testing.T) {
	var p, q Poller
	s := new(stream)
	s.done.Store(1)
	done, not := Pending{Poller: &p, Point: s.at(1)}, Pending{Poller: &q, Point: s.at(2)}
	failed := errors.New("failed")
	fails := Pending{Poller: &p, Point: &free{poll: func() (bool, error) { return false, failed }}}
	var o Owner
	o.End(nil)
	ended := Pending{Poller: &p, Point: s.at(1), Owner: &o}

	_, err := All(background, []Pending{done, {}, done})
	require.NoError(t, err)
	for _, c := range []struct {
		ps    []Pending
		index int
		err   error
	}{
		{[]Pending{done, fails}, 1, failed},
		{[]Pending{done, {}, ended}, 2, ErrEnded},
		{[]Pending{not, done, fails}, 2, failed}, // which the poller finds
		{[]Pending{done, not, ended}, 2, ErrEnded},
	} {
		i, err := All(background, c.ps)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.index, i)
	}
	for _, c := range []struct {
		ps    []Pending
		index int
		err   error
	}{
		{[]Pending{not, done}, 1, nil},
		{[]Pending{not, {}}, 1, nil},
		{[]Pending{not, fails, done}, 1, failed},
		{[]Pending{not, not, ended}, 2, ErrEnded},
	} {
		i, err := Any(background, c.ps)
		require.Equal(t, c.err, err)
		require.Equal(t, c.index, i)
	}

	gone, cancel := context.WithCancel(background)
	cancel()
	_, err = All(gone, []Pending{done, {}})
	require.NoError(t, err)
	i, err := All(gone, []Pending{done, not})
	require.ErrorIs(t, err, ErrCancelled)
	require.Equal(t, -1, i)
	i, err = Any(gone, []Pending{not, done})
	require.NoError(t, err)
	require.Equal(t, 1, i)
	i, err = Any(gone, []Pending{not, not})
	require.ErrorIs(t, err, ErrCancelled)
	require.Equal(t, -1, i)
	rest(t, &p)
	rest(t, &q)
}

type indexed struct {
	index int
	err   error
}

func severally(ctx context.Context, f func(context.Context, []Pending) (int, error), ps []Pending) <-chan indexed {
	c := make(chan indexed, 1)
	go func() {
		i, err := f(ctx, ps)
		c <- indexed{i, err}
	}()
	return c
}

func TestSeveralParked(t *testing.T) {
	check := goes(t)
	var p, q Poller
	s, r := new(stream), new(stream)
	s.done.Store(1)
	var o Owner
	ps := []Pending{{Poller: &p, Point: s.at(1)}, {Poller: &p, Point: s.at(2)}, {}, {Poller: &q, Point: r.at(1), Owner: &o}, {Poller: &p, Point: s.at(3)}}
	both := func(n, m int) {
		t.Helper()
		parked(t, &p, n)
		parked(t, &q, m)
	}

	all := severally(background, All, ps)
	both(2, 1)
	any := severally(background, Any, []Pending{ps[1], ps[3], ps[4]})
	both(4, 2)
	r.done.Store(1)
	require.Equal(t, indexed{1, nil}, <-any)
	both(2, 0)
	require.EqualValues(t, 2, p.Stats().Cancelled, "the losers")
	require.Zero(t, q.Stats().Cancelled)
	s.done.Store(3)
	require.NoError(t, (<-all).err)
	rest(t, &p)
	rest(t, &q)
	require.EqualValues(t, 2, p.Stats().Cancelled)

	// A failure ends it and the rest is given up.
	r.done.Store(0)
	s.done.Store(1)
	all = severally(background, All, ps)
	any = severally(background, Any, ps[3:])
	both(3, 2)
	o.End(&q)
	require.Equal(t, indexed{3, ErrEnded}, <-all)
	require.Equal(t, indexed{0, ErrEnded}, <-any)
	both(0, 0)
	require.EqualValues(t, 5, p.Stats().Cancelled)
	rest(t, &p)
	rest(t, &q)

	// The context ends it.
	ps[3].Owner = nil
	ctx, cancel := context.WithCancel(background)
	all = severally(ctx, All, ps)
	any = severally(ctx, Any, ps[3:])
	both(3, 2)
	cancel()
	require.Equal(t, indexed{-1, ErrCancelled}, <-all)
	require.Equal(t, indexed{-1, ErrCancelled}, <-any)
	both(0, 0)
	require.EqualValues(t, 8, p.Stats().Cancelled)
	require.EqualValues(t, 2, q.Stats().Cancelled)
	rest(t, &p)
	rest(t, &q)
	check()
}

// The same point more than once, and many of them.
func TestAllOfMany(t *testing.T) {
	check := goes(t)
	var p Poller
	s := new(stream)
	var ps []Pending
	for i := range uint64(5000) {
		m := s.at(i + 1)
		ps = append(ps, Pending{Poller: &p, Point: m}, Pending{Poller: &p, Point: m, NoSpin: true})
	}
	all, first := severally(background, All, ps), severally(background, Any, ps)
	parked(t, &p, 2*len(ps))
	s.done.Store(1)
	require.LessOrEqual(t, (<-first).index, 1)
	parked(t, &p, len(ps)-2)
	s.done.Store(5000)
	require.NoError(t, (<-all).err)
	rest(t, &p)
	check()
}

// What is done when the context ends counts, though no poller has asked yet.
func TestDoneWhenCancelled(t *testing.T) {
	for name, f := range map[string]func(context.Context, []Pending) (int, error){"all": All, "any": Any} {
		t.Run(name, func(t *testing.T) {
			p := Poller{Sleep: func(_ []Point, _ time.Duration, wake <-chan struct{}) { <-wake }}
			synctest.Test(t, func(t *testing.T) {
				var done [2]atomic.Bool
				var ps []Pending
				for i := range done {
					ps = append(ps, Pending{Poller: &p, Point: &free{
						poll:  func() (bool, error) { return done[i].Load(), nil },
						place: func() (any, uint64, uint64) { return &done[i], 1, 1 },
					}})
				}
				ctx, cancel := context.WithCancel(background)
				w := severally(ctx, f, ps)
				synctest.Wait()
				done[1].Store(true)
				if name == "all" {
					done[0].Store(true)
				}
				cancel()
				r := <-w
				require.NoError(t, r.err)
				if name == "any" {
					require.Equal(t, 1, r.index)
				}
			})
			s := p.Stats()
			require.Equal(t, s.Parked, s.Woken+s.Cancelled)
			require.EqualValues(t, map[string]uint64{"all": 2, "any": 1}[name], s.Woken)
		})
	}
}
