package cuda

import (
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Graph is captured work and its order, made by [Stream.Capture]. To run it,
// instantiate it. Any number of goroutines may share it.
type Graph struct {
	native  *native.Graph
	cleanup runtime.Cleanup
}

// Device returns the device of the stream that was captured.
func (g *Graph) Device() *Device {
	if !g.usable() {
		return nil
	}
	return deviceOf(g.native.Dev)
}

// Handle returns the native CUgraph, for as long as g is open and reachable.
func (g *Graph) Handle() driver.Graph {
	if !g.usable() {
		return 0
	}
	return g.native.Native
}

func (g *Graph) usable() bool { return g != nil && g.native != nil }

func nilGraph(op string) error { return invalid(op, "the graph is nil") }

// Nodes returns the number of nodes: copies, kernels and other work, and external
// events. Ordinary events are edges and not nodes (cuGraphGetNodes).
func (g *Graph) Nodes() (int, error) {
	const op = "graph nodes"
	if !g.usable() {
		return 0, nilGraph(op)
	}
	n, err := g.native.Nodes()
	runtime.KeepAlive(g)
	return int(n), failed(op, err)
}

// Instantiate makes an executable graph of g (cuGraphInstantiate), which must be
// closed. g may be closed before it. The time grows with the number of nodes:
// do it once, and launch often.
func (g *Graph) Instantiate() (*GraphExec, error) {
	const op = "graph instantiate"
	if !g.usable() {
		return nil, nilGraph(op)
	}
	n, err := g.native.Instantiate()
	runtime.KeepAlive(g)
	if err != nil {
		return nil, failed(op, err)
	}
	x := &GraphExec{native: n}
	x.cleanup = runtime.AddCleanup(x, (*native.GraphExec).Forgotten, n)
	return x, nil
}

// Close destroys the graph (cuGraphDestroy). Executable graphs made of it stay.
// Closing again is nil.
func (g *Graph) Close() error {
	if !g.usable() {
		return nil
	}
	g.cleanup.Stop()
	return failed("graph close", g.native.Close())
}

// String names the graph by device and handle.
func (g *Graph) String() string {
	if !g.usable() {
		return "cuda.Graph(nil)"
	}
	return fmt.Sprintf("cuda.Graph(device %d, %#x)", g.native.Dev.Index, uintptr(g.native.Native))
}

// GraphExec is a [Graph] that can be launched, again and again. Launching a graph
// costs the host little more than enqueueing one piece of work, however many
// nodes it has. Any number of goroutines may share it; launches of one GraphExec
// run one after the other, whatever streams they are on.
type GraphExec struct {
	native  *native.GraphExec
	cleanup runtime.Cleanup
}

func (x *GraphExec) usable() bool { return x != nil && x.native != nil }

// Device returns the device of the stream that was captured.
func (x *GraphExec) Device() *Device {
	if !x.usable() {
		return nil
	}
	return deviceOf(x.native.Dev)
}

// Handle returns the native CUgraphExec, for as long as x is open and reachable.
func (x *GraphExec) Handle() driver.GraphExec {
	if !x.usable() {
		return 0
	}
	return x.native.Native
}

// Launch enqueues on s all the work of the graph (cuGraphLaunch): it begins when
// what is in s is done, and what is enqueued on s later comes after all of it. It
// returns at once and allocates nothing. s cannot be capturing ([ErrCapturing]).
func (x *GraphExec) Launch(s *Stream) error {
	return x.on("graph launch", s, (*native.GraphExec).Launch)
}

// Upload does on s what the first launch of the graph would do besides its work
// (cuGraphUpload), so that the first launch is as fast as the later ones. It
// returns at once.
func (x *GraphExec) Upload(s *Stream) error {
	return x.on("graph upload", s, (*native.GraphExec).Upload)
}

func (x *GraphExec) on(op string, s *Stream, do func(*native.GraphExec, *native.Stream) error) error {
	switch {
	case !s.usable():
		return nilStream(op)
	case !x.usable():
		return nilGraph(op)
	}
	err := do(x.native, s.native)
	runtime.KeepAlive(x)
	runtime.KeepAlive(s)
	return failed(op, err)
}

// Update gives the launches from now on the parameters of g, such as other
// buffers and kernel arguments, which is much faster than instantiating g
// (cuGraphExecUpdate). g must have the same nodes in the same order, captured by
// the same calls; otherwise the error matches driver.ErrorGraphExecUpdateFailure,
// and x is as it was.
func (x *GraphExec) Update(g *Graph) error {
	const op = "graph update"
	if !x.usable() || !g.usable() {
		return nilGraph(op)
	}
	err := x.native.Update(g.native)
	runtime.KeepAlive(x)
	runtime.KeepAlive(g)
	return failed(op, err)
}

// Close destroys the executable graph (cuGraphExecDestroy). Launches in flight run
// on to their end, and it does not wait for them; but if it is the last to hold
// closed memory of [Alloc], freeing that does. Closing again is nil.
func (x *GraphExec) Close() error {
	if !x.usable() {
		return nil
	}
	x.cleanup.Stop()
	return failed("graph close", x.native.Close())
}

// String names the executable graph by device and handle.
func (x *GraphExec) String() string {
	if !x.usable() {
		return "cuda.GraphExec(nil)"
	}
	return fmt.Sprintf("cuda.GraphExec(device %d, %#x)", x.native.Dev.Index, uintptr(x.native.Native))
}
