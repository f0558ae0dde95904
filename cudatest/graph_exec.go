package cudatest

import (
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// graphExec is an executable graph.
type graphExec struct {
	ctx    *context
	handle driver.GraphExec
	graph  *graph // as it was instantiated or updated last; it may be destroyed
	last   *op    // the end of the last launch or upload, after which the next begins
	at     order.Point
	made   callsite.Site

	branches order.Branches[*node]
}

const (
	execBase uint64 = 0x57d8_9000_0000
	execStep uint64 = 0x100
)

// exec finds the executable graph of a handle, also where its context is broken
// or gone. fn names the caller.
func (p *Process) exec(fn string, h driver.GraphExec) (*graphExec, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	x := p.execs[h]
	if x == nil {
		p.badHandle(fn, "executable graph", uint64(h), execBase, execStep, p.gpu.execs)
		return nil, driver.ErrorInvalidValue
	}
	if x.ctx.destroyed {
		return x, driver.ErrorContextIsDestroyed
	}
	p.gpu.advance()
	return x, x.ctx.fault
}

func (p *Process) graphInstantiateWithFlags(h driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("GraphInstantiateWithFlags")
	if r != driver.Success {
		return 0, r
	}
	g, r := p.graph("GraphInstantiateWithFlags", h)
	switch {
	case r != driver.Success:
		return 0, r
	case flags != 0: // the table has names for none
		return 0, driver.ErrorInvalidValue
	case p.forbidden():
		return 0, driver.ErrorStreamCaptureUnsupported
	}
	p.gpu.execs++
	x := &graphExec{
		ctx:    c,
		handle: driver.GraphExec(p.gpu.handle(execBase, execStep, p.gpu.execs)),
		graph:  g,
		made:   callsite.Caller(),
	}
	p.execs[x.handle] = x
	return x.handle, driver.Success
}

// graphExecDestroy leaves launches in flight alone. It may run in a cleanup: see
// the package's comment.
func (p *Process) graphExecDestroy(h driver.GraphExec) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	x, r := p.exec("GraphExecDestroy", h)
	switch {
	case x == nil:
		return r
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	delete(p.execs, h)
	x.branches.Retire()
	return r
}

// graphExecUpdate acts on later launches, not on those in flight.
func (p *Process) graphExecUpdate(xh driver.GraphExec, gh driver.Graph) (driver.GraphNode, driver.GraphExecUpdateResult, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	x, r := p.exec("GraphExecUpdate", xh)
	if r != driver.Success {
		return 0, driver.GraphExecUpdateError, r
	}
	g, r := p.graph("GraphExecUpdate", gh)
	if r != driver.Success {
		return 0, driver.GraphExecUpdateError, r
	}
	switch n, why := x.graph.fits(g); {
	case why == driver.GraphExecUpdateSuccess:
	case n == nil:
		return 0, why, driver.ErrorGraphExecUpdateFailure
	default: // no function takes the handle of a node
		at := slices.Index(g.nodes, n)
		return driver.GraphNode(gh) + driver.GraphNode(at), why, driver.ErrorGraphExecUpdateFailure
	}
	x.graph = g
	return 0, driver.GraphExecUpdateSuccess, driver.Success
}

// launching finds an executable graph and the stream for a call that puts it
// there.
func (p *Process) launching(fn string, xh driver.GraphExec, sh driver.Stream) (*graphExec, *stream, driver.Result) {
	x, r := p.exec(fn, xh)
	if r != driver.Success {
		return nil, nil, r
	}
	s, r := p.on(fn, sh)
	if r != driver.Success {
		return nil, nil, r
	}
	if r := p.launchable(fn, x.graph); r != driver.Success {
		return nil, nil, r
	}
	if s.capture != nil { // a real driver makes no child graph of it
		s.capture.kill()
		return nil, nil, driver.ErrorStreamCaptureUnsupported
	}
	return x, s, s.implicit()
}

// launchable answers for launches of g whose contexts or events are gone.
func (p *Process) launchable(fn string, g *graph) driver.Result {
	for _, n := range g.nodes {
		switch {
		case n.ctx.destroyed:
			return driver.ErrorContextIsDestroyed
		case n.ctx.fault != driver.Success:
			return n.ctx.fault
		}
		for _, e := range []*event{n.record, n.wait} {
			if e != nil && p.events[e.handle] != e {
				p.misuse(fn, "event %#x of a node was destroyed", e.handle)
				return driver.ErrorInvalidHandle
			}
		}
	}
	return driver.Success
}

func (p *Process) graphUpload(xh driver.GraphExec, sh driver.Stream) driver.Result {
	defer p.enter("GraphUpload", sh, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	x, s, r := p.launching("GraphUpload", xh, sh)
	if r != driver.Success {
		return r
	}
	s.sequence.Join(x.at)
	s.submit(&op{}, x.last)
	x.last, x.at = s.tail, s.sequence.Last()
	return driver.Success
}

func (p *Process) graphLaunch(xh driver.GraphExec, sh driver.Stream) driver.Result {
	defer p.enter("GraphLaunch", sh, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	x, s, r := p.launching("GraphLaunch", xh, sh)
	if r != driver.Success {
		return r
	}
	s.sequence.Join(x.at)
	s.submit(&op{}, x.last)
	ops := x.launch(s)
	s.submit(&op{}, ops...)
	x.last, x.at = s.tail, s.sequence.Last()
	for _, o := range ops {
		if o.ctx != s.ctx { // another device is as busy with it as with a stream's work
			o.ctx.adopt(&stream{flags: driver.StreamNonBlocking, tail: o})
			o.ctx.gone = order.Merge(o.ctx.gone, x.at)
		}
	}
	return driver.Success
}

// launch puts the nodes of x on the timeline, after all that is in s, and returns the
// operation of each. In the order, what is put on s later comes after them.
func (x *graphExec) launch(s *stream) []*op {
	g := s.ctx.proc.gpu
	launched := callsite.Caller()
	start, begin := s.tail, s.sequence.Last()
	ops := make([]*op, len(x.graph.nodes))
	made := make(map[*node]*op, len(ops))
	points := make(map[*node]order.Point, len(ops))
	branch := x.branches.Launch(&g.order, s.sequence)
	for i, n := range x.graph.nodes {
		preds := []*op{start}
		sequence := branch(n, n.after)
		sequence.Join(begin)
		for _, a := range n.after {
			preds = append(preds, made[a])
			sequence.Join(points[a])
		}
		o := &op{}
		switch {
		case n.record != nil:
			if n.record.timing() {
				o.dur = int64(tick)
			}
			if old := n.record.op; old.pending() && old.stuck {
				preds = append(preds, old)
			}
		case n.wait != nil:
			preds = append(preds, n.wait.op)
			sequence.Join(n.wait.at)
		default:
			o = n.op.anew()
			o.task = o.task.InGraph(s, &launched)
		}
		o.ctx, o.at = n.ctx, sequence.Next()
		points[n] = o.at
		g.submit(o, preds...)
		if n.record != nil {
			n.record.recorded(o, points[n])
		}
		ops[i], made[n] = o, o
	}
	for _, p := range points {
		s.sequence.Join(p)
	}
	return ops
}
