package wait

import "sync/atomic"

// Owner is embedded in what ends its waits by being closed: an event or a stream. The zero
// value is ready. All waits of one Owner use one Poller.
type Owner struct {
	ended  atomic.Bool
	parked atomic.Bool // some wait has been parked
	// The parked ones of each loop, whose mutex guards the list.
	waiters [2]*waiter
}

// Ended reports whether End was called.
func (o *Owner) Ended() bool { return o != nil && o.ended.Load() }

// End ends all waits of o with [ErrEnded], now and in future. p may be nil if no wait of o
// was ever parked, and then this costs next to nothing. Waits in a bubble of
// testing/synctest can be ended only in the bubble.
func (o *Owner) End(p *Poller) {
	o.ended.Store(true)
	if !o.parked.Load() { // a waiter that parks later finds that it has ended
		return
	}
	for i := range p.loops {
		p.loops[i].end(&o.waiters[i])
	}
}

// end ends the waits of a list.
func (l *loop) end(list **waiter) {
	l.mu.Lock()
	var waiters, functions []*waiter
	for *list != nil {
		w := *list
		l.remove(w)
		w.err = ErrEnded
		if w.f == nil {
			waiters = append(waiters, w)
		} else {
			functions = append(functions, w)
		}
	}
	if n := len(waiters) + len(functions); n > 0 {
		l.poller.count.complete(n)
		l.removed()
	}
	l.mu.Unlock()
	notify(waiters)
	if len(functions) > 0 { // the caller may hold what they need
		go notify(functions)
	}
}
