package cudatest

import (
	"slices"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// graph is what a capture becomes. Its nodes never change, so executable graphs
// share them.
type graph struct {
	handle driver.Graph
	nodes  []*node // in an order that respects their dependencies
	made   callsite.Site
}

// node is an operation of a graph: work, or the record of or wait for an event.
type node struct {
	ctx    *context
	after  []*node
	op     *op // what each launch submits the like of; it was never submitted
	record *event
	wait   *event
}

const (
	graphBase uint64 = 0x57d0_9000_0000
	graphStep uint64 = 0x100
)

// nodeKind is what an update cannot change in a node.
type nodeKind struct {
	role string
	kind opKind
}

func (n *node) kind() nodeKind {
	switch {
	case n.record != nil:
		return nodeKind{role: "record"}
	case n.wait != nil:
		return nodeKind{role: "wait"}
	}
	return nodeKind{n.op.what, n.op.kind}
}

// fits reports whether b can take a's place in an executable graph, and if not,
// why, with the node of b that is in the way if there is one.
func (a *graph) fits(b *graph) (*node, driver.GraphExecUpdateResult) {
	if len(a.nodes) != len(b.nodes) {
		return nil, driver.GraphExecUpdateNotSupported // as a real driver says
	}
	number := map[*node]int{}
	for i := range a.nodes {
		number[a.nodes[i]], number[b.nodes[i]] = i, i
	}
	for i, n := range b.nodes {
		same := func(x, y *node) bool { return number[x] == number[y] }
		if !slices.EqualFunc(a.nodes[i].after, n.after, same) {
			return n, driver.GraphExecUpdateTopologyChanged
		}
	}
	for i, n := range b.nodes {
		switch old := a.nodes[i]; {
		case old.kind() != n.kind():
			return n, driver.GraphExecUpdateNodeTypeChanged
		case old.ctx != n.ctx:
			return n, driver.GraphExecUpdateParametersChanged
		}
	}
	return nil, driver.GraphExecUpdateSuccess
}

// graph finds the graph of a handle. fn names the caller.
func (p *Process) graph(fn string, h driver.Graph) (*graph, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	g := p.graphs[h]
	if g == nil {
		p.badHandle(fn, "graph", uint64(h), graphBase, graphStep, p.gpu.graphs)
		return nil, driver.ErrorInvalidValue
	}
	return g, driver.Success
}

// graphGetNodes counts only: the table's function says how much room there is
// for nodes by the result that it returns, which begins as none.
func (p *Process) graphGetNodes(h driver.Graph, _ unsafe.Pointer) (n uint64, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	g, r := p.graph("GraphGetNodes", h)
	if r != driver.Success {
		return 0, r
	}
	return uint64(len(g.nodes)), driver.Success
}

func (p *Process) graphDestroy(h driver.Graph) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.graph("GraphDestroy", h); r != driver.Success {
		return r
	}
	delete(p.graphs, h)
	return driver.Success
}
