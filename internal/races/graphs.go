package races

import (
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// graphs are the graphs of a table.
type graphs struct {
	captured map[driver.Graph]*graph
	execs    map[driver.GraphExec]*graphExec
}

// capture is a capture that is going on.
type capture struct {
	origin  *stream
	nodes   []*node
	streams []*stream
}

// node is a node of a graph.
type node struct {
	operation
	ctx   *context // on which it runs
	after []*node
}

// graph is what a capture has made, or a graph that was made of others. What comes after a node
// is behind it.
type graph struct {
	nodes []*node
	users int // graphs and executable graphs
}

// graphExec is an executable graph.
type graphExec struct {
	graph    *graph
	at       order.Point // the end of the last launch
	branches order.Branches[*node]
}

// add adds a node that is put on s.
func (c *capture) add(s *stream, o *operation) {
	n := &node{operation: *o, ctx: s.ctx, after: s.frontier}
	c.nodes = append(c.nodes, n)
	s.frontier = []*node{n}
}

// join makes s part of the capture, if it is not yet; what is put on it comes after nodes.
func (c *capture) join(s *stream, nodes []*node) {
	if s.capture == nil {
		s.capture = c
		c.streams = append(c.streams, s)
	}
	s.frontier = slices.Clone(s.frontier)
	for _, n := range nodes {
		if !slices.Contains(s.frontier, n) {
			s.frontier = append(s.frontier, n)
		}
	}
}

// end ends the capture and returns its graph.
func (c *capture) end() *graph {
	for _, s := range c.streams {
		if s.capture == c {
			s.capture, s.frontier = nil, nil
		}
	}
	return &graph{nodes: c.nodes, users: 1}
}

// release is called when a graph or an executable graph of it is destroyed.
func (g *graph) release() {
	if g.users--; g.users > 0 {
		return
	}
	for _, n := range g.nodes {
		if n.host != nil {
			n.host.release()
		}
	}
}

func (d *detector) wrapGraphs(api *driver.API) {
	d.captured, d.execs = map[driver.Graph]*graph{}, map[driver.GraphExec]*graphExec{}
	api.StreamBeginCapture = func(h driver.Stream, mode driver.CaptureMode) driver.Result {
		s := d.stream(h)
		s.turn.Lock()
		defer s.turn.Unlock()
		r := d.api.StreamBeginCapture(h, mode)
		if r == driver.Success {
			d.mu.Lock()
			defer d.mu.Unlock()
			(&capture{origin: s}).join(s, nil)
		}
		return r
	}
	api.StreamEndCapture = func(h driver.Stream) (driver.Graph, driver.Result) {
		s := d.stream(h)
		s.turn.Lock()
		defer s.turn.Unlock()
		native, r := d.api.StreamEndCapture(h)
		d.mu.Lock()
		defer d.mu.Unlock()
		c := s.capture
		if c == nil {
			return native, r
		}
		g := c.end()
		if r == driver.Success {
			d.captured[native] = g
		} else {
			g.release()
		}
		return native, r
	}
	api.GraphDestroy = func(h driver.Graph) driver.Result {
		d.mu.Lock()
		if g := d.captured[h]; g != nil {
			delete(d.captured, h)
			g.release()
		}
		d.mu.Unlock()
		return d.api.GraphDestroy(h)
	}
	api.GraphInstantiateWithFlags = func(h driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
		native, r := d.api.GraphInstantiateWithFlags(h, flags)
		if r == driver.Success {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.execs[native] = &graphExec{graph: d.graph(h)}
		}
		return native, r
	}
	api.GraphExecUpdate = func(x driver.GraphExec, h driver.Graph) (driver.GraphNode, driver.GraphExecUpdateResult, driver.Result) {
		n, why, r := d.api.GraphExecUpdate(x, h)
		d.mu.Lock()
		defer d.mu.Unlock()
		if exec := d.execs[x]; r == driver.Success && exec != nil {
			exec.graph.release()
			exec.graph = d.graph(h)
		}
		return n, why, r
	}
	api.GraphExecDestroy = func(h driver.GraphExec) driver.Result {
		d.mu.Lock()
		if x := d.execs[h]; x != nil {
			delete(d.execs, h)
			x.branches.Retire()
			x.graph.release()
		}
		d.mu.Unlock()
		return d.api.GraphExecDestroy(h)
	}
	api.GraphLaunch = func(x driver.GraphExec, h driver.Stream) driver.Result {
		launched := callsite.Caller()
		s := d.stream(h)
		s.turn.Lock()
		defer s.turn.Unlock()
		d.mu.Lock()
		var undo func()
		if exec := d.execs[x]; exec != nil && s.capture == nil { // before its host functions run
			undo = d.launch(exec, s, &launched)
		}
		d.unlock()
		r := d.api.GraphLaunch(x, h)
		if r != driver.Success && undo != nil {
			d.mu.Lock()
			defer d.unlock()
			undo()
		}
		return r
	}
}

// graph returns a graph for another user; one without nodes if it is not known. The caller
// holds mu.
func (d *detector) graph(h driver.Graph) *graph {
	g := d.captured[h]
	if g == nil {
		g = &graph{}
	}
	g.users++
	return g
}

// launch notes a launch of x on s. The caller holds mu, and calls undo, then too, if the driver
// refuses it.
func (d *detector) launch(x *graphExec, s *stream, launched *callsite.Site) (undo func()) {
	s.follow()
	s.sequence.Join(x.at)
	begin := s.sequence.Next()
	nodes := x.graph.nodes
	points, tasks, calls := make(map[*node]order.Point, len(nodes)), make([]*Task, len(nodes)), map[*hostFunc]*hostCall{}
	branch := x.branches.Launch(&d.order, s.sequence)
	for i, n := range nodes {
		sequence := branch(n, n.after)
		sequence.Join(begin)
		for _, a := range n.after {
			sequence.Join(points[a])
		}
		tasks[i] = n.task.InGraph(s, launched)
		points[n] = n.on(d, sequence, tasks[i])
		if n.host != nil {
			c := n.host.calls[len(n.host.calls)-1]
			c.exec = x
			calls[n.host] = c
		}
	}
	for _, p := range points {
		s.sequence.Join(p)
	}
	x.at = s.sequence.Next()
	for _, n := range nodes {
		if n.ctx != s.ctx { // another device is as busy with it as with a stream's work
			n.ctx.gone = order.Merge(n.ctx.gone, x.at)
		}
	}
	return func() {
		for _, t := range tasks {
			if t != nil {
				t.Refused = true
			}
		}
		for h, c := range calls {
			d.refused(h, c)
		}
	}
}
