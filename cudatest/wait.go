package cudatest

import (
	"time"

	"github.com/purecuda/cuda/driver"
)

// pollEvery is how long a waiter sleeps, at first, between two looks at a word in
// memory that the CPU may change.
const pollEvery = 20 * time.Microsecond

// pollLater is how long to sleep until the next look where each takes a timer:
// a thousandth of the time for which the youngest wait has been looking, so that
// an hour of virtual time is not millions of looks.
func (g *GPU) pollLater() time.Duration {
	var youngest int64
	for _, o := range g.armed {
		youngest = max(youngest, o.finish)
	}
	return max(pollEvery, time.Duration(g.now-youngest)/1024)
}

// clock returns the caller's present on the GPU's timeline.
//
// A GPU made in a synctest bubble lives in the bubble's time, which begins in
// the year 2000; a call from elsewhere, such as a runtime cleanup, cannot know
// that time, so the timeline stands still for it.
func (g *GPU) clock() (now int64, inside bool) {
	t := time.Now()
	switch bubble := inBubble(t); {
	case bubble == g.bubble:
		return max(g.now, int64(t.Sub(g.epoch))), true
	case g.bubble:
		return g.now, false
	default:
		panic("cudatest: this GPU was made outside the synctest bubble that uses it: call New inside the bubble")
	}
}

// inBubble reports whether t was read in a synctest bubble.
func inBubble(t time.Time) bool { return t.Unix() < 1_400_000_000 }

// advance brings the simulation up to the caller's present.
func (g *GPU) advance() {
	if now, inside := g.clock(); inside {
		g.advanceTo(now)
		g.callDue()
	}
}

// rouse makes sure that the timeline advances by itself while there is work that
// a program may watch without calling the driver: what writes to host memory, and
// host functions. Kernels and faults too, since a failure ends waits for others.
// Nothing else needs that.
func (g *GPU) rouse() {
	g.callDue()
	at := int64(never)
	switch {
	case g.visible == 0:
		return
	case len(g.armed) > 0:
		at = g.now + int64(g.pollLater())
	case len(g.pending) > 0:
		at = g.pending[0].finish
	}
	if at >= g.alarmAt {
		return // set already, or only the release of a hold can change anything
	}
	if _, inside := g.clock(); !inside {
		return // the alarm is the bubble's
	}
	g.alarmAt = at
	d := time.Duration(at - g.now)
	if g.alarm != nil {
		g.alarm.Reset(d)
		return
	}
	g.alarm = time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.alarmAt = never
		g.advance()
		g.rouse()
	})
}

// await blocks until o is done, or c is broken or its process ends. The caller holds g.mu,
// before and after, and finds out which of these it was.
//
// Waiting is on the timeline's clock and on channels made here, so that it
// blocks durably in a synctest bubble.
func (g *GPU) await(c *context, o *op) {
	for {
		now, inside := g.clock()
		if !inside {
			return
		}
		g.advanceTo(now)
		g.callDue()
		if o == nil || o.state == done || c.fault != driver.Success || c.proc.dying {
			return
		}
		until := c.faultAt
		var polled chan struct{}
		switch {
		case o.state == known:
			until = min(until, o.finish)
		case len(g.armed) > 0 && !g.polling:
			g.poll(c, o)
			continue
		case len(g.armed) > 0:
			polled = g.polled
		case g.unarmed > 0:
			until = min(until, g.pending[0].finish)
		}
		if o.state == unknown && o.notify == nil {
			o.notify = make(chan struct{})
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		notify, changed := o.notify, g.changed
		g.mu.Unlock()
		var timer *time.Timer
		var expired <-chan time.Time
		if until < never {
			timer = time.NewTimer(time.Duration(until - now))
			expired = timer.C
		}
		select {
		case <-expired:
		case <-notify:
		case <-changed:
		case <-polled:
		}
		if timer != nil {
			timer.Stop()
		}
		g.mu.Lock()
	}
}

// poll looks at the words of the armed valueOps until o's finish is known. One
// waiter at a time does it for all of them; the next takes over when it leaves.
func (g *GPU) poll(c *context, o *op) {
	g.polling, g.polled = true, make(chan struct{})
	for o.state == unknown && len(g.armed) > 0 && c.fault == driver.Success && !c.proc.dying {
		later := g.pollLater()
		g.mu.Unlock()
		if g.bubble {
			time.Sleep(later)
		} else {
			nap(pollEvery)
		}
		g.mu.Lock()
		g.advance()
	}
	g.polling = false
	close(g.polled)
}
