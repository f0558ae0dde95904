package cudatest

import (
	"container/heap"
	"math"
	"time"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// The timeline: every operation has a finish time that follows from when it was
// submitted, how long it takes, and what it comes after. Nothing runs in the
// background: each call into the table first brings the simulation up to the
// present, which applies the effects of all operations that finished since then,
// in the order of their finish times. (See GPU.rouse for the one exception.)

// never is later than all times.
const never = math.MaxInt64

// timeline is the simulation's state in time. The GPU's mutex guards it.
type timeline struct {
	bubble  bool // it is in a synctest bubble's time; never changes
	now     int64
	seq     uint64
	pending pendingOps
	unarmed int             // valueOps and hostOps in pending whose turn has not come
	armed   []*op           // valueOps that look at their words
	due     []*op           // hostOps to call, in the order of their turns
	visible int             // visible ops that are not done
	changed chan struct{}   // closed by broadcast; made by a waiter
	untold  []chan struct{} // to close, by the next call from inside the bubble
	ready   []*op           // scratch of settle
}

// submit puts o on the timeline after preds; nil and done ones do not matter.
// The timeline must have been advanced.
func (t *timeline) submit(o *op, preds ...*op) *op {
	t.seq++
	o.seq = t.seq
	o.start = t.now
	o.preds = o.predBuf[:0]
	for _, p := range preds {
		if p == nil || p.state == done {
			continue
		}
		o.preds = append(o.preds, p)
		o.stuck = o.stuck || p.stuck
		if p.state == known {
			o.start = max(o.start, p.finish)
		} else {
			p.succs = append(p.succs, o)
			o.unknowns++
		}
	}
	if o.visible && !o.stuck {
		t.visible++
	}
	if o.unknowns == 0 {
		t.settle(o)
		t.advanceTo(t.now)
	}
	return o
}

// settle is called when the finish times of all of o's predecessors are known:
// it works out o's own, and those of the ops that waited to hear of it.
func (t *timeline) settle(o *op) {
	ready := append(t.ready[:0], o)
	for len(ready) > 0 {
		o := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		o.stuck = o.ctx.proc.dead
		for _, p := range o.preds {
			o.stuck = o.stuck || p.stuck
		}
		switch {
		case o.stuck:
			continue
		case o.kind == holdOp:
			if !o.gate.open {
				o.gate.waiting = append(o.gate.waiting, o)
				continue
			}
			o.finish = max(o.start, t.now)
		case (o.kind == valueOp || o.kind == hostOp) && !o.armed:
			o.finish = o.start // when it begins
			t.unarmed++
			heap.Push(&t.pending, o)
			continue
		case o.kind == valueOp || o.kind == hostOp:
			o.finish = t.now
		default:
			o.finish = o.start + o.dur
			if o.finish < o.start {
				o.finish = never - 1
			}
		}
		o.state = known
		heap.Push(&t.pending, o)
		if o.notify != nil {
			t.tell(o.notify)
			o.notify = nil
		}
		if o.slept {
			o.slept = false
			t.broadcast()
		}
		if o.kind == faultOp {
			o.ctx.faultAt = min(o.ctx.faultAt, o.finish)
			t.broadcast()
		}
		for _, s := range o.succs {
			s.start = max(s.start, o.finish)
			if s.unknowns--; s.unknowns == 0 {
				ready = append(ready, s)
			}
		}
		o.succs = nil
	}
	t.ready = ready
}

// advanceTo applies everything that happens up to time to, and makes that the
// present.
func (t *timeline) advanceTo(to int64) {
	for {
		for len(t.pending) > 0 && t.pending[0].finish <= to {
			o := heap.Pop(&t.pending).(*op)
			t.now = max(t.now, o.finish)
			t.reach(o)
		}
		t.now = max(t.now, to)
		if !t.look() {
			return
		}
	}
}

// reach is called when the present has come to o's finish.
func (t *timeline) reach(o *op) {
	if o.state == unknown { // its turn has come
		t.unarmed--
		o.armed = true
		switch {
		case o.kind == hostOp && o.ctx.fault == driver.Success:
			t.due = append(t.due, o)
		case o.kind == hostOp || o.satisfied():
			t.settle(o)
		default:
			t.armed = append(t.armed, o)
		}
		return
	}
	o.state = done
	if o.visible {
		t.visible--
	}
	g, effect := o.ctx.proc.gpu, o.effect
	o.preds, o.predBuf, o.effect, o.word = nil, [2]*op{}, nil, nil
	switch {
	case o.ctx.fault != driver.Success: // what stood behind a fault never ran
	case o.kind == faultOp:
		o.ctx.fault = o.code
	case o.kind == valueOp:
		g.order.Acquire(o.at, o.waits.block.history.Writers(o.waits.from, o.waits.to)...)
	case o.kind == hostOp, o.kind == holdOp: // the host has let it go on
		g.order.Acquire(o.at)
	case effect != nil:
		g.used(o, effect())
		t.look()
	}
	o.at, o.task, o.waits = order.Point{}, nil, use{}
}

// look makes those of the armed valueOps known whose words have their values
// now, and reports whether there were any.
func (t *timeline) look() (any bool) {
	for i := 0; i < len(t.armed); i++ {
		o := t.armed[i]
		if !o.satisfied() {
			continue
		}
		last := len(t.armed) - 1
		t.armed[i], t.armed[last] = t.armed[last], nil
		t.armed = t.armed[:last]
		i--
		t.settle(o)
		any = true
	}
	return any
}

// broadcast makes all waiters look again.
func (t *timeline) broadcast() {
	if t.changed != nil {
		t.untold = append(t.untold, t.changed)
		t.changed = nil
	}
	t.flush()
}

// tell closes a waiter's channel. A bubble's channel cannot be closed from outside
// of it: the next call from inside does that.
func (t *timeline) tell(waiter chan struct{}) {
	t.untold = append(t.untold, waiter)
	t.flush()
}

func (t *timeline) flush() {
	if len(t.untold) == 0 || t.bubble && !inBubble(time.Now()) {
		return
	}
	for _, c := range t.untold {
		close(c)
	}
	clear(t.untold)
	t.untold = t.untold[:0]
}
