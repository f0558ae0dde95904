package wait

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// timed is a point that is done at a time of a bubble.
type timed struct {
	at    time.Time
	queue any
	first uint64
	polls atomic.Int64
}

func (p *timed) Poll() (bool, error)          { p.polls.Add(1); return !time.Now().Before(p.at), nil }
func (p *timed) Place() (any, uint64, uint64) { return p.queue, p.first, p.first }

// sleep is a Sleep for such points.
func sleep(points []Point, limit time.Duration, wake <-chan struct{}) {
	d := limit
	for _, p := range points {
		if u := max(time.Until(p.(*timed).at), 1); d <= 0 || u < d {
			d = u
		}
	}
	select {
	case <-wake:
	case <-time.After(d):
	}
}

func TestVirtualTime(t *testing.T) {
	p := Poller{Sleep: sleep}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		queue := new(int)
		var waits sync.WaitGroup
		var points []*timed
		for i := range 100 {
			pt := &timed{at: began.Add(time.Duration(i+1) * time.Hour), queue: queue, first: uint64(i)}
			if i%10 == 9 {
				pt.queue = new(int)
			}
			points = append(points, pt)
			waits.Go(func() {
				succeeds(t, p.Wait(background, pt, nil, true))
				if took := time.Since(began); took != time.Duration(i+1)*time.Hour {
					t.Errorf("number %d took %v", i, took)
				}
			})
		}
		ctx, cancel := context.WithTimeout(background, 30*time.Minute)
		defer cancel()
		require.ErrorIs(t, p.Wait(ctx, points[50], nil, true), ErrCancelled)
		require.Equal(t, 30*time.Minute, time.Since(began))
		synctest.Wait()
		require.Equal(t, 100, p.Stats().Waiting)
		waits.Wait()
		require.Equal(t, 100*time.Hour, time.Since(began))
		require.Less(t, p.Stats().Queries, uint64(3000))
	})
	rest(t, &p)
	synctest.Test(t, func(t *testing.T) { // another bubble
		began := time.Now()
		require.NoError(t, p.Wait(background, &timed{at: began.Add(time.Hour), queue: t}, nil, true))
		i, err := Any(background, []Pending{
			{Poller: &p, Point: &timed{at: began.Add(3 * time.Hour), queue: new(int)}},
			{Poller: &p, Point: &timed{at: began.Add(2 * time.Hour), queue: new(int)}},
		})
		require.NoError(t, err)
		require.Equal(t, 1, i)
		require.Equal(t, 2*time.Hour, time.Since(began))
	})
	rest(t, &p)
}

// A bubble ends though what was given up will never be done.
func TestBubbleEndsAfterWaitsThatWereGivenUp(t *testing.T) {
	p := Poller{Sleep: sleep}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		never := began.Add(200 * 365 * 24 * time.Hour)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		require.ErrorIs(t, p.Wait(ctx, &timed{at: never, queue: t}, nil, true), ErrCancelled)
		var o Owner
		calls := 0
		p.Notify(&timed{at: never, queue: t}, &o, func(err error) {
			calls++
			if err != ErrEnded {
				t.Error(err)
			}
		})
		synctest.Wait()
		o.End(&p)
		synctest.Wait()
		require.Equal(t, 1, calls)
		require.Equal(t, time.Second, time.Since(began))
	})
	rest(t, &p)
}

// A point may be done at the very moment at which the context ends.
func TestDoneAtTheDeadline(t *testing.T) {
	for range 50 {
		p := Poller{Sleep: sleep}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			require.NoError(t, p.Wait(ctx, &timed{at: time.Now().Add(time.Second), queue: t}, nil, true))
		})
		rest(t, &p)
	}
}

// Points whose place is not known may be done by others, of whom Sleep does not know.
func TestPlaceNotKnownInABubble(t *testing.T) {
	p := Poller{Sleep: func(_ []Point, limit time.Duration, wake <-chan struct{}) {
		var after <-chan time.Time
		if limit > 0 {
			after = time.After(limit)
		}
		select {
		case <-wake:
		case <-after:
		}
	}}
	synctest.Test(t, func(t *testing.T) {
		pt := &timed{at: time.Now().Add(100 * time.Millisecond)}
		began := time.Now()
		require.NoError(t, p.Wait(background, pt, nil, true))
		require.Less(t, time.Since(began), 102*time.Millisecond)
	})
	rest(t, &p)
}

// Waits in a bubble and outside of it use the same poller, and even the same owner,
// whichever begin first.
func TestInAndOutOfABubble(t *testing.T) {
	for name, outsideFirst := range map[string]bool{"outside first": true, "inside first": false} {
		t.Run(name, func(t *testing.T) {
			check := goes(t)
			p := Poller{Sleep: sleep}
			var o Owner
			var f flag
			begin, begun := make(chan struct{}), make(chan struct{})
			outside := make(chan error, 2)
			go func() {
				<-begin
				p.Notify(&f, &o, func(err error) { outside <- err })
				go func() { outside <- p.Wait(background, &f, nil, true) }()
				for p.loops[0].waiting(&f) < 2 {
					time.Sleep(time.Millisecond)
				}
				close(begun)
			}()
			now := func() {
				close(begin)
				<-begun
			}
			if outsideFirst {
				now()
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := start(&p, background, &timed{at: began.Add(time.Hour), queue: t}, &o)
				w2 := start(&p, background, &timed{at: began.Add(2 * time.Hour), queue: t, first: 1}, &o)
				synctest.Wait()
				if !outsideFirst {
					now()
				}
				require.Equal(t, 4, p.Stats().Waiting)
				require.Equal(t, 2, p.Stats().Pollers)
				p.Wake()
				require.NoError(t, <-w)
				require.Equal(t, time.Hour, time.Since(began))
				require.NoError(t, <-w2)
			})
			require.Equal(t, 2, p.Stats().Waiting)
			p.Wake()
			o.End(&p)
			require.ErrorIs(t, get(t, outside), ErrEnded)
			f.done.Store(true)
			require.NoError(t, get(t, outside))
			rest(t, &p)
			check()
		})
	}
}

// waiting returns how many wait for pt.
func (l *loop) waiting(pt Point) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[pt]; e != nil {
		return len(e.waiters)
	}
	return 0
}

// Without Sleep the time of a bubble stands still while somebody waits.
func TestBubbleWithoutSleep(t *testing.T) {
	var p Poller
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var polls atomic.Int64
		require.NoError(t, p.Wait(background, &free{poll: func() (bool, error) { return polls.Add(1) > 50, nil }}, nil, true))
		require.NoError(t, p.Wait(background, &free{poll: func() (bool, error) { return polls.Add(1) > 100, nil }, place: func() (any, uint64, uint64) { return t, 1, 1 }}, nil, true))
		if canSleepOnThread {
			require.Zero(t, time.Since(began))
		}
	})
	rest(t, &p)
}
