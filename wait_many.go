package cuda

import (
	"context"
	"fmt"
	"time"
)

// WaitAll waits until all of work is done, or ctx is. What must be done is settled
// when it is called: the last records of the events, and all that the streams and
// devices have been given by then. It holds no thread while it waits. The first
// failure ends it, and the error says whose it was. Of nothing it returns nil.
func WaitAll(ctx context.Context, work ...Waitable) error {
	s := waitForSeveral("wait for all", work)
	defer s.end()
	for range work {
		if o := s.next(ctx, true); o.err != nil {
			return o.err
		}
	}
	return nil
}

// WaitAny waits until one of work is done, or ctx is, and returns its index. What
// must be done is settled when it is called, as by [WaitAll]. It holds no thread
// while it waits. If the wait for one of them fails first, its index and the error
// are returned; -1 if ctx ended first.
func WaitAny(ctx context.Context, work ...Waitable) (int, error) {
	const op = "wait for any"
	if len(work) == 0 {
		return -1, invalid(op, "there is nothing to wait for")
	}
	s := waitForSeveral(op, work)
	defer s.end()
	o := s.next(ctx, false)
	return o.index, o.err
}

// several is a wait for several things.
type several struct {
	op      string
	waiters []waiter
	failed  []error   // why a wait could not begin
	left    []int     // the indexes of those that are not over
	over    []outcome // of those that are, and were not returned
	began   time.Time
	parked  bool
	told    chan outcome
}

func waitForSeveral(op string, work []Waitable) *several {
	s := &several{
		op:      op,
		waiters: make([]waiter, len(work)),
		failed:  make([]error, len(work)),
		left:    make([]int, len(work)),
		told:    make(chan outcome, len(work)),
	}
	for i, w := range work {
		s.left[i] = i
		s.waiters[i].index, s.waiters[i].told = i, s.told
		if w == nil {
			s.failed[i] = invalid(op, "it is nil")
			continue
		}
		s.waiters[i].pending, s.failed[i] = w.begin(op)
	}
	return s
}

// next waits for the next that is over; all says that the rest will be asked for too.
func (s *several) next(ctx context.Context, all bool) outcome {
	if ctx == nil {
		return outcome{-1, nilContext(s.op)}
	}
	if len(s.over) == 0 && !s.parked {
		if s.began.IsZero() {
			s.began = time.Now()
		}
		s.ask(ctx, all)
		if len(s.over) == 0 && ctx.Err() == nil {
			s.park()
		}
	}
	if len(s.over) > 0 {
		o := s.over[0]
		s.over = s.over[1:]
		return s.name(o)
	}
	if s.parked {
		select {
		case o := <-s.told:
			return s.name(o)
		case <-ctx.Done():
		}
		select {
		case o := <-s.told:
			return s.name(o)
		default:
		}
	}
	s.waiters[s.left[0]].event.dev.driver.waits.cancelled.Add(1)
	return outcome{-1, gaveUp(ctx, s.op)}
}

// ask asks after what is left, as [spin] does, until something is over.
func (s *several) ask(ctx context.Context, all bool) {
	seat, ended := takeSeat(), ctx.Err() != nil
	spin(ctx, s.began, func() bool { return seat }, func() bool {
		left := s.left[:0]
		for n, i := range s.left {
			w := &s.waiters[i]
			over, err := w.event == nil, s.failed[i]
			switch {
			case over:
			case len(s.over) > 0 && !all, n%glances == glances-1 && !ended && ctx.Err() != nil: // enough
			case seat:
				over, err = w.pending.ask(s.op)
			case ended: // what is done is done
				over, err = w.askAnyway(s.op)
			}
			if over {
				s.over = append(s.over, outcome{i, err})
			} else {
				left = append(left, i)
			}
		}
		s.left = left
		return len(s.over) > 0
	})
	if seat {
		leaveSeat()
	}
}

// park leaves the rest to the watchers.
func (s *several) park() {
	s.parked = true
	for _, i := range s.left {
		w := &s.waiters[i]
		w.event.dev.watcher.add(w, s.began)
	}
}

// end ends all the waits.
func (s *several) end() {
	for i := range s.waiters {
		w := &s.waiters[i]
		if s.parked && w.event != nil {
			w.event.dev.watcher.remove(w)
		}
		w.end()
		w.keep = nil // the event may still refer to w
	}
}

// name says in o's error whose it is.
func (s *several) name(o outcome) outcome {
	if o.err != nil {
		o.err = named(o.err, fmt.Sprintf("%s, number %d of %d", s.op, o.index, len(s.waiters)))
	}
	return o
}
