package cudatest

import (
	"time"

	"github.com/purecuda/cuda/driver"
)

// sleepOutside is how long a sleep lasts at most outside the GPU's synctest
// bubble, whose time is unknown there.
const sleepOutside = time.Millisecond

// sleep waits on the timeline's clock and on a channel made here, so that it
// blocks durably in a synctest bubble.
func (p *Process) sleep(events []driver.Event, limit time.Duration, wake <-chan struct{}) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	deadline := int64(never)
	for first := true; ; first = false {
		now, inside := g.clock()
		if !inside {
			if limit <= 0 || limit > sleepOutside {
				limit = sleepOutside
			}
			g.doze(limit, nil, wake)
			return
		}
		if first && limit > 0 && int64(limit) < never-now {
			deadline = now + int64(limit)
		}
		g.advanceTo(now)
		g.callDue()
		until := min(p.outlook(events), deadline)
		if until <= now {
			return
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		d := time.Duration(0)
		if until < never {
			d = time.Duration(until - now)
		}
		if g.doze(d, g.changed, wake) {
			return
		}
	}
}

// doze gives g.mu up until d has passed, if it is positive, or one of the channels
// can be received from; it reports whether that was wake.
func (g *GPU) doze(d time.Duration, changed, wake <-chan struct{}) (woken bool) {
	g.mu.Unlock()
	defer g.mu.Lock()
	var expired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-expired:
	case <-changed:
	case <-wake:
		return true
	}
	return false
}

// outlook returns until when EventQuery answers NOT_READY for all of the events,
// as far as is known; not later than the present if it does not. What may bring
// that forward is marked, so that it ends in a broadcast.
func (p *Process) outlook(events []driver.Event) (until int64) {
	g := p.gpu
	if p.dying || !p.initialized {
		return g.now
	}
	until = never
	for _, h := range events {
		e := p.events[h] // and no call of look, which notes misuse and ends captures
		if e == nil || e.ctx.destroyed || e.ctx.fault != driver.Success || e.capture != nil || !e.op.pending() {
			return g.now
		}
		e.slept = true
		until = min(until, e.ctx.faultAt)
		switch {
		case e.op.state == known:
			until = min(until, e.op.finish)
			continue
		case e.op.stuck:
			continue
		}
		e.op.slept = true
		if len(g.armed) > 0 { // somebody must look at what the CPU stores
			until = min(until, g.now+int64(g.pollLater()))
		}
		if len(g.armed)+g.unarmed > 0 && len(g.pending) > 0 { // which may store or begin to look
			until = min(until, g.pending[0].finish)
		}
	}
	return until
}
