package wait

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

var (
	// ErrEnded is how a wait ends whose owner has ended its waits.
	ErrEnded = errors.New("the owner of the wait has ended it")
	// ErrCancelled is how a wait ends whose context has ended first.
	ErrCancelled = errors.New("the context of the wait has ended")
)

// TryFast polls a few times before a wait begins, if nobody waits on p and no other
// goroutine polls like this. done false and no error say nothing about the point. It
// allocates nothing.
func (p *Poller) TryFast(pt Point) (done bool, err error) {
	if p.count.waiting.Load() != 0 || !p.fast.CompareAndSwap(false, true) {
		return false, nil
	}
	n := uint64(1)
	for done, err = pt.Poll(); !done && err == nil && n < fastPolls; n++ {
		done, err = pt.Poll()
	}
	p.fast.Store(false)
	p.count.queries.Add(n)
	return done, err
}

// Wait waits until pt is done. It returns what Poll failed with, if it did; [ErrEnded] if o,
// which may be nil, has ended its waits; or [ErrCancelled] if ctx ended first, though what
// is done by then counts as done. With spin it polls in a loop for a short time, if that is
// likely to pay, before it leaves the point to the poller.
func (p *Poller) Wait(ctx context.Context, pt Point, o *Owner, spin bool) error {
	_, err := wait(ctx, []Pending{{p, pt, o, !spin}}, true)
	return err
}

// Notify calls f once when pt is over: with nil, what Poll failed with, or [ErrEnded] if o,
// which may be nil, has ended its waits. It calls f itself if that is so at once. Others
// may have to wait for f, so it must return soon; it may call anything of this package.
func (p *Poller) Notify(pt Point, o *Owner, f func(error)) {
	pending := Pending{Poller: p, Point: pt, Owner: o}
	if polling.enter(maxPolling) {
		over, err := pending.poll()
		polling.leave()
		if over {
			f(err)
			return
		}
	}
	if !p.park(&waiter{f: f, owner: o}, pt, time.Now()) {
		f(ErrEnded)
	}
}

const (
	fastPolls = 3

	// Work is often short, and polling in a loop notices its end first.
	patience     = 300 * time.Microsecond
	pollsPerLook = 8 // at the clock

	// A goroutine that polls holds a thread for as long as the device's driver takes, which does one
	// thing at a time anyway. So of a crowd that comes at once only some poll.
	maxPolling = 8
	// Some of those may poll in a loop, but half of the processors are left to others.
	maxSpinning = 4
)

// crowd counts the goroutines of the process that do something.
type crowd struct{ n atomic.Int32 }

var polling, spinning crowd

// enter reports whether the caller may do so too. Then it must leave.
func (c *crowd) enter(most int) bool {
	if int(c.n.Add(1)) <= most {
		return true
	}
	c.n.Add(-1)
	return false
}

// enterSoon is enter for a caller that cannot park instead. It does not wait for long.
func (c *crowd) enterSoon(most int) bool {
	for range 100 {
		if c.enter(most) {
			return true
		}
		runtime.Gosched()
	}
	return false
}

func (c *crowd) leave() { c.n.Add(-1) }

// waiter is a wait that is parked. The mutex of its loop guards it until it is over.
type waiter struct {
	call  *call // to notify
	index int   // in it
	f     func(error)
	owner *Owner

	loop       *loop
	entry      *entry // nil when it is over
	at         int    // its index there
	since      uint64 // the round of questions in or before which it came
	err        error  // how it ended
	next, prev *waiter
}

// park has w notified when pt is over. It reports false if the owner has ended its waits.
func (p *Poller) park(w *waiter, pt Point, began time.Time) bool {
	l := p.loopAt(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := w.owner; o != nil {
		o.parked.Store(true) // before the look: End looks the other way round
		if o.ended.Load() {
			return false
		}
	}
	if !l.running {
		l.poller, l.virtual = p, l == &p.loops[1] && p.Sleep != nil
	}
	p.count.park()
	e := l.add(w, pt, began)
	l.start()
	l.wakeFor(e, began)
	return true
}

// parked reports whether w still waits, and whether its loop polls just now; err is how it
// has ended.
func (w *waiter) parked() (parked, polls bool, err error) {
	if w.loop == nil {
		return false, false, w.err // it never was
	}
	w.loop.mu.Lock()
	defer w.loop.mu.Unlock()
	return w.entry != nil, w.loop.until.IsZero(), w.err
}

// cancel takes w out, unless it is over. done says that what it waits for is done.
func (w *waiter) cancel(done bool) {
	l := w.loop
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.entry == nil {
		return
	}
	l.remove(w)
	if done {
		l.poller.count.complete(1)
	} else {
		l.poller.count.cancel()
	}
	l.removed()
}

// notify ends w's wait. Nobody else does.
func (w *waiter) notify() {
	if w.f != nil {
		w.f(w.err)
	} else {
		w.call.complete(w.index, w.err)
	}
}

// Notifying takes a while, so where there are many others help.
const (
	notifyHere = 32
	notifyEach = 256
)

func notify(waiters []*waiter) {
	for len(waiters) > notifyHere {
		n := min(notifyEach, len(waiters))
		go func(waiters []*waiter) {
			for _, w := range waiters {
				w.notify()
			}
		}(waiters[:n])
		waiters = waiters[n:]
	}
	for _, w := range waiters {
		w.notify()
	}
}

// list returns where the list of w's owner begins.
func (w *waiter) list() **waiter {
	i := 0
	if w.loop == &w.loop.poller.loops[1] {
		i = 1
	}
	return &w.owner.waiters[i]
}

// own enters w in the list of its owner.
func (w *waiter) own() {
	if w.owner == nil {
		return
	}
	list := w.list()
	if w.next = *list; w.next != nil {
		w.next.prev = w
	}
	*list = w
}

// disown is the reverse of own.
func (w *waiter) disown() {
	if w.owner == nil {
		return
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		*w.list() = w.next
	}
	w.next, w.prev = nil, nil
}
