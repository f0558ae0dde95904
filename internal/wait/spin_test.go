package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// short is a point that is done a while after it was first asked.
func short(d time.Duration) Point {
	var began atomic.Pointer[time.Time]
	return &free{poll: func() (bool, error) {
		now := time.Now()
		began.CompareAndSwap(nil, &now)
		return now.Sub(*began.Load()) > d, nil
	}}
}

func TestSpin(t *testing.T) {
	var p Poller
	becomes(t, func() bool { // unless something else had the processor
		before := p.Stats().Parked
		require.NoError(t, p.Wait(background, short(50*time.Microsecond), nil, true))
		return p.Stats().Parked == before
	})
	before := p.Stats().Parked
	require.NoError(t, p.Wait(background, short(50*time.Microsecond), nil, false))
	require.Equal(t, before+1, p.Stats().Parked)
	require.NoError(t, p.Wait(background, short(3*time.Millisecond), nil, true))
	require.Equal(t, before+2, p.Stats().Parked)

	// Behind what is parked spinning does not pay.
	s := new(stream)
	oldest := notified(&p, s.at(1), nil)
	m := s.at(2)
	w := started(func() error { return p.Wait(background, m, nil, true) })
	parked(t, &p, 2)
	require.EqualValues(t, 1, m.polls.Load())
	s.done.Store(2)
	require.NoError(t, get(t, w))
	require.NoError(t, get(t, oldest))
	rest(t, &p)
	require.Zero(t, polling.n.Load())
	require.Zero(t, spinning.n.Load())
}

// How many may spin follows GOMAXPROCS.
func TestFewSpin(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for procs, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 6: 3, 8: 4, 32: 4} {
		runtime.GOMAXPROCS(procs)
		for others := range 6 {
			var p Poller
			for range others {
				require.True(t, spinning.enter(others))
			}
			spins := func() bool {
				before := p.Stats().Parked
				require.NoError(t, p.Wait(background, short(20*time.Microsecond), nil, true))
				return p.Stats().Parked == before
			}
			if others < most {
				becomes(t, spins) // unless something else had the processor
			} else {
				require.False(t, spins())
			}
			for range others {
				spinning.leave()
			}
			rest(t, &p)
		}
	}
	require.Zero(t, spinning.n.Load())
}

// Of a crowd only a few poll for themselves, as each holds a thread for as long as the
// answer takes.
func TestFewPoll(t *testing.T) {
	check := goes(t)
	var p Poller
	var asking atomic.Int64
	gate := make(chan struct{})
	s := new(stream)
	m := s.at(1)
	pt := &free{place: m.Place, poll: func() (bool, error) { asking.Add(1); <-gate; return true, nil }}
	var crowd sync.WaitGroup
	for range 200 {
		crowd.Go(func() { succeeds(t, p.Wait(background, pt, nil, true)) })
	}
	parked(t, &p, 200-maxPolling)
	require.LessOrEqual(t, asking.Load(), int64(maxPolling+1))
	close(gate)
	crowd.Wait()
	rest(t, &p)
	check()
}
