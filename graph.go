package cuda

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// Graph is captured work and its order, made by [Stream.Capture]. To run it,
// instantiate it. Any number of goroutines may share it.
type Graph struct {
	h       *handle
	held    *held
	mu      sync.Mutex // the driver wants one call for a graph at a time
	cleanup runtime.Cleanup
}

// newGraph makes a Graph that holds what k does.
func newGraph(d *Device, native driver.Graph, k *held) *Graph {
	k.users.Add(1)
	g := &Graph{h: newHandle(d, kindGraph, uint64(native)), held: k}
	g.h.held = k
	g.cleanup = runtime.AddCleanup(g, (*handle).forget, g.h)
	return g
}

// Device returns the device of the stream that was captured.
func (g *Graph) Device() *Device {
	if g == nil || g.h == nil {
		return nil
	}
	return g.h.dev
}

// Handle returns the native CUgraph, for as long as g is open and reachable.
func (g *Graph) Handle() driver.Graph {
	if g == nil || g.h == nil {
		return 0
	}
	return driver.Graph(g.h.native)
}

// Nodes returns the number of nodes: copies, kernels and other work, and external
// events. Ordinary events are edges and not nodes (cuGraphGetNodes).
func (g *Graph) Nodes() (int, error) {
	const op = "graph nodes"
	if err := g.acquire(op); err != nil {
		return 0, err
	}
	defer g.release()
	n, r := g.h.dev.driver.api.GraphGetNodes(g.Handle(), nil)
	return int(n), check(op, r)
}

// Instantiate makes an executable graph of g (cuGraphInstantiate), which must be
// closed. g may be closed before it. It takes the longer the more nodes there are:
// do it once, and launch often.
func (g *Graph) Instantiate() (*GraphExec, error) {
	const op = "graph instantiate"
	if err := g.acquire(op); err != nil {
		return nil, err
	}
	defer g.release()
	d := g.h.dev
	var native driver.GraphExec
	r := d.driver.relaxed(func() driver.Result {
		return d.bound(func(api *driver.API) (r driver.Result) {
			native, r = api.GraphInstantiateWithFlags(g.Handle(), 0)
			return r
		})
	})
	if r != driver.Success {
		return nil, failure(op, r)
	}
	return newGraphExec(d, native, g.held), nil
}

// Close destroys the graph (cuGraphDestroy). Executable graphs made of it stay.
// Closing again is nil.
func (g *Graph) Close() error {
	if g == nil || g.h == nil {
		return nil
	}
	g.cleanup.Stop()
	return check("graph close", g.h.close())
}

// String names the graph by device and handle.
func (g *Graph) String() string {
	if g == nil || g.h == nil {
		return "cuda.Graph(nil)"
	}
	return fmt.Sprintf("cuda.Graph(device %d, %#x)", g.h.dev.index, g.h.native)
}

// acquire holds the graph and keeps other goroutines' calls off it.
func (g *Graph) acquire(op string) error {
	if g == nil || g.h == nil {
		return invalid(op, "the graph is nil")
	}
	if !g.h.acquire() {
		return closed(op, "the graph")
	}
	g.mu.Lock()
	return nil
}

func (g *Graph) release() {
	g.mu.Unlock()
	g.h.release()
	runtime.KeepAlive(g)
}
