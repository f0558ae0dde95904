package wait

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnlyTheOldestIsAsked(t *testing.T) {
	for range 5 {
		check := goes(t)
		var p Poller
		s := new(stream)
		const n = 30
		marks := make([]*mark, n)
		waits := make([]<-chan error, n)
		cancels := make([]context.CancelFunc, n)
		for i := range marks {
			marks[i] = s.at(uint64(10 + i))
		}
		for _, i := range rand.Perm(n) {
			var ctx context.Context
			ctx, cancels[i] = context.WithCancel(background)
			waits[i] = start(&p, ctx, marks[i], nil)
		}
		parked(t, &p, n)
		only := func(i int) {
			t.Helper()
			time.Sleep(time.Millisecond) // an answer may be on its way
			all, one := s.polls.Load(), marks[i].polls.Load()
			becomes(t, func() bool { return marks[i].polls.Load() > one+3 })
			l := &p.loops[0]
			l.mu.Lock()
			defer l.mu.Unlock()
			require.InDelta(t, s.polls.Load()-all, marks[i].polls.Load()-one, 1)
		}
		only(0)
		cancels[0]()
		require.ErrorIs(t, get(t, waits[0]), ErrCancelled)
		only(1)
		cancels[2]() // which was not asked
		require.ErrorIs(t, get(t, waits[2]), ErrCancelled)
		only(1)
		s.done.Store(19)
		for i := 1; i < 10; i++ {
			if i != 2 {
				require.NoError(t, get(t, waits[i]))
			}
		}
		only(10)
		require.Equal(t, n-10, p.Stats().Waiting)
		s.done.Store(100)
		for _, w := range waits[10:] {
			require.NoError(t, get(t, w))
		}
		rest(t, &p)
		require.EqualValues(t, 2, p.Stats().Cancelled)
		for _, cancel := range cancels {
			cancel()
		}
		check()
	}
}

func TestManyNeedFewQuestions(t *testing.T) {
	const streams, each = 100, 100
	for name, part := range map[string]uint64{"all": each, "half": each / 2, "one": 1, "all but one": each - 1} {
		t.Run(name, func(t *testing.T) {
			check := goes(t)
			var p Poller
			var left sync.WaitGroup
			var open atomic.Bool
			all := make([]*stream, streams)
			for i := range all {
				s := new(stream)
				all[i] = s
				for n := range uint64(each) {
					left.Add(1)
					m := s.at(n + 1)
					p.Notify(&free{place: m.Place, poll: func() (bool, error) {
						return open.Load() && s.done.Load() >= m.last, nil
					}}, nil, func(error) { left.Done() })
				}
			}
			require.Equal(t, streams*each, p.Stats().Waiting)
			for _, s := range all {
				s.done.Store(part)
			}
			before := p.Stats()
			open.Store(true)
			becomes(t, func() bool { return p.Stats().Waiting == streams*(each-int(part)) })
			after := p.Stats()
			if part == each {
				left.Wait()
				require.LessOrEqual(t, asked(before, after, streams), 4*streams)
			}
			require.LessOrEqual(t, asked(before, after, streams), 25*streams)
			for _, s := range all {
				s.done.Store(each)
			}
			left.Wait()
			rest(t, &p)
			check()
		})
	}
}

// asked returns how many questions there were, without one for each queue whenever the
// poller woke, which depends on how long the test takes to look.
func asked(before, after Stats, queues int) int {
	return int(after.Queries-before.Queries) - queues*int(after.Wakeups-before.Wakeups)
}

// A queue of many of which the first half are done is asked a logarithm's times.
func TestSearch(t *testing.T) {
	var p Poller
	s := new(stream)
	const n = 10_000
	var open atomic.Bool
	for i := range uint64(n) {
		m := s.at(i + 1)
		p.Notify(&free{place: m.Place, poll: func() (bool, error) { return open.Load() && s.done.Load() >= m.last, nil }}, nil, func(error) {})
	}
	s.done.Store(n / 2)
	before := p.Stats()
	open.Store(true)
	becomes(t, func() bool { return p.Stats().Waiting == n/2 })
	require.Less(t, asked(before, p.Stats(), 1), 300)
	s.done.Store(n)
	rest(t, &p)
}

// Waiters for one point share a question.
func TestOnePointOfMany(t *testing.T) {
	check := goes(t)
	var p Poller
	f := new(flag)
	const n = 10_000
	var over sync.WaitGroup
	for i := range n {
		over.Add(1)
		if i%10 == 0 {
			go func() { defer over.Done(); succeeds(t, p.Wait(background, f, nil, true)) }()
		} else {
			p.Notify(f, nil, func(err error) { defer over.Done(); succeeds(t, err) })
		}
	}
	parked(t, &p, n)
	require.Len(t, p.loops[0].entries, 1)
	f.done.Store(true)
	over.Wait()
	rest(t, &p)
	require.EqualValues(t, n, p.Stats().Woken)
	check()
}

func TestOverlappingPlaces(t *testing.T) {
	var p Poller
	queue := new(int)
	// The oldest by its last number, one that may come before it, and one that may not.
	var done [4]atomic.Bool
	var polls [4]atomic.Int64
	places := [4][2]uint64{{5, 5}, {3, 9}, {6, 7}, {1, math.MaxUint64}}
	waits := make([]<-chan error, 4)
	for i := range done {
		waits[i] = notified(&p, &free{
			poll:  func() (bool, error) { polls[i].Add(1); return done[i].Load(), nil },
			place: func() (any, uint64, uint64) { return queue, places[i][0], places[i][1] },
		}, nil)
	}
	parked(t, &p, 4)
	count := polls[2].Load()
	oldest := polls[0].Load()
	becomes(t, func() bool { return polls[0].Load() > oldest+5 })
	require.LessOrEqual(t, polls[2].Load(), count+1, "that cannot be done yet")

	done[1].Store(true)
	require.NoError(t, get(t, waits[1]))
	done[3].Store(true)
	require.NoError(t, get(t, waits[3]))
	waiting(t, waits[0])
	done[2].Store(true) // and so is what comes before it
	done[0].Store(true)
	require.NoError(t, get(t, waits[0]))
	require.NoError(t, get(t, waits[2]))
	rest(t, &p)
}

func TestHugePlaces(t *testing.T) {
	var p Poller
	s := new(stream)
	var waits []<-chan error
	for _, n := range []uint64{math.MaxUint64, 1, math.MaxUint64 - 1, 1 << 63, 0, math.MaxUint64} {
		m := s.at(n)
		waits = append(waits, notified(&p, &free{place: m.Place, poll: func() (bool, error) {
			return s.done.Load() >= max(n, 1), nil
		}}, nil))
	}
	wrong := &free{poll: func() (bool, error) { return s.done.Load() > 1, nil }, place: func() (any, uint64, uint64) { return s, 7, 3 }}
	waits = append(waits, notified(&p, wrong, nil))
	parked(t, &p, 7)
	s.done.Store(1)
	require.NoError(t, get(t, waits[1]))
	require.NoError(t, get(t, waits[4]))
	waiting(t, waits[3])
	s.done.Store(math.MaxUint64 - 1)
	for _, i := range []int{2, 3, 6} {
		require.NoError(t, get(t, waits[i]))
	}
	waiting(t, waits[0])
	s.done.Store(math.MaxUint64)
	require.NoError(t, get(t, waits[0]))
	require.NoError(t, get(t, waits[5]))
	rest(t, &p)
}

// Points whose place is not known are asked by themselves, beside any others.
func TestPlaceNotKnown(t *testing.T) {
	var p Poller
	s := new(stream)
	held := notified(&p, s.at(1), nil)
	flags := make([]atomic.Bool, 50)
	waits := make([]<-chan error, 50)
	for i := range flags {
		waits[i] = notified(&p, &free{poll: func() (bool, error) { return flags[i].Load(), nil }}, nil)
	}
	for _, i := range rand.Perm(50) {
		waiting(t, waits[i])
		flags[i].Store(true)
		require.NoError(t, get(t, waits[i]))
	}
	s.done.Store(1)
	require.NoError(t, get(t, held))
	rest(t, &p)
}

func TestMoved(t *testing.T) {
	var p Poller
	s := new(stream)
	var placed, done atomic.Bool
	var polls atomic.Int64
	pt := &free{
		poll: func() (bool, error) { polls.Add(1); return done.Load(), nil },
		place: func() (any, uint64, uint64) {
			if placed.Load() {
				return s, 5, 5
			}
			return nil, 0, 0
		},
	}
	oldest, moving := notified(&p, s.at(1), nil), notified(&p, pt, nil)
	asked := func() { t.Helper(); n := polls.Load(); becomes(t, func() bool { return polls.Load() > n+3 }) }
	asked()
	placed.Store(true) // which is noticed
	becomes(t, func() bool {
		n := polls.Load()
		time.Sleep(5 * time.Millisecond)
		return polls.Load() == n
	})
	placed.Store(false)
	p.Moved(pt)
	asked()
	placed.Store(true)
	p.Moved(pt)
	placed.Store(false)
	another := notified(&p, pt, nil) // a new waiter lets it be noticed too
	asked()
	done.Store(true)
	require.NoError(t, get(t, moving))
	require.NoError(t, get(t, another))
	waiting(t, oldest)
	p.Moved(pt) // for which nobody waits
	s.done.Store(1)
	require.NoError(t, get(t, oldest))
	rest(t, &p)
}

// A queue that is always done, because its waiters come back, does not keep others waiting.
func TestNoQueueStarvesOthers(t *testing.T) {
	var p Poller
	busy, s := new(stream), new(stream)
	busy.done.Store(math.MaxUint64)
	var stop atomic.Bool
	var next atomic.Uint64
	var again func(error)
	again = func(error) {
		if stop.Load() {
			return
		}
		n, first := next.Add(1), true
		m := busy.at(n)
		p.Notify(&free{place: m.Place, poll: func() (bool, error) { // not yet when the wait begins
			done := !first
			first = false
			return done, nil
		}}, nil, again)
	}
	again(nil)
	again(nil)
	last := notified(&p, &free{place: busy.at(1 << 40).Place, poll: func() (bool, error) { return stop.Load(), nil }}, nil)
	other := notified(&p, s.at(1), nil)
	waiting(t, other)
	s.done.Store(1)
	require.NoError(t, get(t, other))
	require.Greater(t, next.Load(), uint64(10))
	stop.Store(true)
	require.NoError(t, get(t, last))
	rest(t, &p)
}
