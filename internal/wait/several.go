package wait

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Pending is one of several things that are waited for together.
type Pending struct {
	Poller *Poller
	Point  Point // nil if it is done already
	Owner  *Owner
	NoSpin bool
}

// All waits until all of ps are done. The first failure ends it: its index is returned with
// it. If ctx ends first, that is -1 and [ErrCancelled]; without an error the index means
// nothing.
func All(ctx context.Context, ps []Pending) (index int, err error) { return wait(ctx, ps, true) }

// Any waits until one of ps is done or fails, and returns its index; -1 and [ErrCancelled]
// if ctx ended first. Of nothing it returns -1 at once.
func Any(ctx context.Context, ps []Pending) (index int, err error) { return wait(ctx, ps, false) }

// several is the state of a wait for all or any.
type several struct {
	all   bool
	done  int       // how many of the first are done, if all must be
	began time.Time // zero until something was not done, to save time
}

func wait(ctx context.Context, ps []Pending, all bool) (index int, err error) {
	if len(ps) == 0 {
		return -1, nil
	}
	s := several{all: all}
	if ctx.Err() == nil {
		if over, index, err := s.pollFirst(ctx, ps); over {
			return index, err
		}
	}
	if ctx.Err() == nil {
		return s.park(ctx, ps)
	}
	if !polling.enterSoon(maxPolling) {
		return -1, ErrCancelled
	}
	defer polling.leave()
	return s.pollLast(ps, nil)
}

// poll asks about one of several.
func (p *Pending) poll() (over bool, err error) {
	switch {
	case p.Point == nil:
		return true, nil
	case p.Owner.Ended():
		return true, ErrEnded
	}
	return p.Poller.poll(p.Point)
}

// pollFirst polls before ps are parked.
func (s *several) pollFirst(ctx context.Context, ps []Pending) (over bool, index int, err error) {
	if !polling.enter(maxPolling) {
		return false, 0, nil
	}
	defer polling.leave()
	if s.all {
		return s.pollAll(ctx, ps)
	}
	return s.pollAny(ctx, ps)
}

// pollAll polls each once, as a failure ends the call, and then one after the other until one
// is not done.
func (s *several) pollAll(ctx context.Context, ps []Pending) (over bool, index int, err error) {
	for i := range ps {
		over, err := ps[i].poll()
		switch {
		case err != nil:
			return true, i, err
		case over && s.done == i:
			s.done++
		}
		if s.late(ctx, i) {
			break
		}
	}
	for ; s.done < len(ps); s.done++ {
		if ps[s.done].Point == nil {
			continue
		}
		over, _, err := s.spin(ctx, ps[s.done:s.done+1])
		if err != nil {
			return true, s.done, err
		}
		if !over {
			return false, 0, nil
		}
	}
	return true, len(ps) - 1, nil
}

// pollAny polls until one is over.
func (s *several) pollAny(ctx context.Context, ps []Pending) (over bool, index int, err error) {
	for i := range ps {
		if over, err := ps[i].poll(); over {
			return true, i, err
		}
		if s.late(ctx, i) {
			return false, 0, nil
		}
	}
	return s.spin(ctx, ps)
}

// spin polls in a loop until one of ps is over, if that is likely to pay.
func (s *several) spin(ctx context.Context, ps []Pending) (over bool, index int, err error) {
	if !s.maySpin(ps) || !spinning.enter(max(1, min(maxSpinning, runtime.GOMAXPROCS(0)/2))) {
		return false, 0, nil
	}
	defer spinning.leave()
	for n := 0; ; n++ {
		i := n % len(ps)
		if over, err := ps[i].poll(); over {
			return true, i, err
		}
		if s.late(ctx, n) {
			return false, 0, nil
		}
	}
}

// maySpin reports whether work of ps may end soon. In a bubble no time passes.
func (s *several) maySpin(ps []Pending) bool {
	s.begin()
	if len(ps) > mostToSpin {
		return false
	}
	for _, p := range ps {
		if p.NoSpin || p.Poller.virtual(s.began) || p.Poller.loopAt(s.began).hasOlder(p.Point) {
			return false
		}
	}
	return true
}

// mostToSpin is for how many one may poll in a loop: one after the other takes long.
const mostToSpin = 16

// late reports whether what is left should be parked after poll number n.
func (s *several) late(ctx context.Context, n int) bool {
	if n%pollsPerLook != pollsPerLook-1 {
		return false
	}
	s.begin()
	return ctx.Err() != nil || time.Since(s.began) > patience
}

func (s *several) begin() {
	if s.began.IsZero() {
		s.began = time.Now()
	}
}

// pollLast polls once more for a call whose context has ended. It does not ask about what is parked
// while the poller asks: there may be no answer for long. In a bubble there is one at once.
func (s *several) pollLast(ps []Pending, waiters []waiter) (index int, err error) {
	for i := s.done; i < len(ps); i++ {
		parked, polls := true, false
		if waiters != nil {
			parked, polls, err = waiters[i-s.done].parked()
		}
		over := !parked
		if parked && (!polls || ps[i].Poller.virtual(s.began)) {
			over, err = ps[i].poll()
		}
		switch {
		case over && (err != nil || !s.all):
			return i, err
		case !over && s.all:
			return -1, ErrCancelled
		}
	}
	if s.all {
		return -1, nil
	}
	return -1, ErrCancelled
}

// call is a call of [Poller.Wait], [All] or [Any] that has been parked.
type call struct {
	left   atomic.Int64 // how many must still be done
	result chan result
}

type result struct {
	index int
	err   error
}

func (c *call) complete(index int, err error) {
	if err == nil && c.left.Add(-1) > 0 {
		return
	}
	select {
	case c.result <- result{index, err}:
	default: // another ended the call
	}
}

// park leaves the points to the pollers.
func (s *several) park(ctx context.Context, ps []Pending) (index int, err error) {
	s.begin()
	c := &call{result: make(chan result, 1)}
	c.left.Store(1)
	if s.all {
		c.left.Store(int64(len(ps) - s.done))
	}
	waiters := make([]waiter, len(ps)-s.done)
	for n := range waiters {
		i := s.done + n
		p, w := &ps[i], &waiters[n]
		w.call, w.index, w.owner = c, i, p.Owner
		if p.Point == nil {
			c.complete(i, nil)
		} else if !p.Poller.park(w, p.Point, s.began) {
			w.err = ErrEnded
			c.complete(i, ErrEnded)
		}
	}
	r := s.wait(ctx, c, ps, waiters)
	if !s.all || r.err != nil || r.index < 0 {
		for n := range waiters {
			waiters[n].cancel(r.err == nil && (s.all || n == r.index))
		}
	}
	return r.index, r.err
}

// wait waits for the result, or until the context has ended.
func (s *several) wait(ctx context.Context, c *call, ps []Pending, waiters []waiter) result {
	if ctx.Done() == nil { // a receive wakes faster than a select
		return <-c.result
	}
	select {
	case r := <-c.result:
		return r
	case <-ctx.Done():
	}
	if polling.enterSoon(maxPolling) {
		defer polling.leave()
		if i, err := s.pollLast(ps, waiters); err != ErrCancelled {
			return result{i, err}
		}
	}
	select {
	case r := <-c.result:
		return r
	default:
		return result{-1, ErrCancelled}
	}
}
