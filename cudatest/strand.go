package cudatest

import (
	"cmp"
	"container/heap"
	"slices"
)

// What the death of a process makes of the timeline.

// strand makes the work of dead processes, and all that depends on it, never
// finish.
func (g *GPU) strand() {
	for _, o := range g.unfinished() {
		if o.stuck {
			continue
		}
		o.stuck = o.ctx.proc.dead
		for _, p := range o.preds {
			o.stuck = o.stuck || p.stuck
		}
		if o.stuck && o.visible {
			g.visible--
		}
		if o.kind == faultOp {
			o.ctx.faultAt = never
		}
	}
	old := append(append([]*op(nil), g.pending...), g.armed...)
	g.pending, g.armed, g.unarmed = nil, nil, 0
	for _, o := range old {
		switch {
		case o.stuck:
			o.state = unknown
		case o.armed && o.state == unknown:
			g.armed = append(g.armed, o)
		default:
			if o.state == unknown {
				g.unarmed++
			}
			if o.kind == faultOp {
				o.ctx.faultAt = min(o.ctx.faultAt, o.finish)
			}
			heap.Push(&g.pending, o)
		}
	}
	g.broadcast()
}

// unfinished returns the operations that are not done, in the order of their
// submission, so that dependencies come before what depends on them.
func (g *GPU) unfinished() (all []*op) {
	seen := map[*op]bool{}
	add := func(ops ...*op) {
		for _, o := range ops {
			if o.pending() && !seen[o] {
				seen[o] = true
				all = append(all, o)
			}
		}
	}
	add(g.pending...)
	add(g.armed...)
	for _, p := range g.procs {
		for _, c := range p.contexts {
			if c != nil {
				add(c.work()...)
			}
		}
	}
	for i := 0; i < len(all); i++ {
		add(all[i].preds...)
		add(all[i].succs...)
	}
	slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.seq, b.seq) })
	return all
}
