package native

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
)

// Held is what a captured graph, and the executable graphs made of it, need: they hold it
// together, and the last of them to go releases it. Nothing is added once the capture has
// ended.
type Held struct {
	users   atomic.Int64
	memory  map[*Memory]struct{}
	modules map[*Module]struct{}
	events  map[*nativeEvent]struct{}
	shares  map[*share]struct{}
	calls   []*hostCall
}

func newHeld() *Held {
	h := &Held{memory: map[*Memory]struct{}{}, modules: map[*Module]struct{}{}, events: map[*nativeEvent]struct{}{}, shares: map[*share]struct{}{}}
	h.users.Store(1)
	return h
}

func (h *Held) keep(m *Memory) {
	if _, ok := h.memory[m]; !ok && m.AcquireUsed() {
		h.memory[m] = struct{}{}
	}
}

func (h *Held) keepModule(m *Module) {
	if _, ok := h.modules[m]; !ok && m.AcquireUsed() {
		h.modules[m] = struct{}{}
	}
}

// keepCall keeps a host function, as long as launches in flight may call it.
func (h *Held) keepCall(c *hostCall) {
	release := c.native.Release
	m := &Memory{Dev: c.dev, kind: hostFuncMemory}
	m.onFree.Store(&release)
	m.live().Add(1)
	h.keep(m)
	m.Close() // nobody else has it
	h.calls = append(h.calls, c)
}

func (h *Held) keepEvent(m *Mark) {
	h.events[m.n] = struct{}{}
	if m.share == nil {
		return
	}
	if _, ok := h.shares[m.share]; !ok && m.share.AcquireUsed() {
		h.shares[m.share] = struct{}{}
	}
}

func (h *Held) use() *Held {
	h.users.Add(1)
	return h
}

func (h *Held) release() {
	if h.users.Add(-1) > 0 {
		return
	}
	for m := range h.memory {
		m.leave()
	}
	for m := range h.modules {
		m.leave()
	}
	for s := range h.shares {
		if s.Release() {
			s.driver.cleanupFailed("event", s.destroy())
		}
	}
	*h = Held{}
}

// Graph is the work of a capture.
type Graph struct {
	refs.Count
	Dev    *Device
	Native driver.Graph
	held   *Held
	mu     sync.Mutex // the driver wants one call for a graph at a time
}

func newGraph(d *Device, native driver.Graph, h *Held) *Graph {
	d.Driver.Live.Graphs.Add(1)
	return &Graph{Dev: d, Native: native, held: h}
}

// enter takes a reference and the turn, for calls that name the graph.
func (g *Graph) enter() error {
	if !g.Acquire() {
		return closedError("the graph")
	}
	g.mu.Lock()
	return nil
}

func (g *Graph) exit() error {
	g.mu.Unlock()
	if g.Release() {
		return g.destroy()
	}
	return nil
}

// Nodes returns how many nodes the graph has.
func (g *Graph) Nodes() (uint64, error) {
	if err := g.enter(); err != nil {
		return 0, err
	}
	defer g.exit()
	n, r := g.Dev.mustOpen().QuietBound.GraphGetNodes(g.Native, nil)
	return n, failed(r)
}

// Instantiate makes an executable graph.
func (g *Graph) Instantiate() (*GraphExec, error) {
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.exit()
	native, r := g.Dev.mustOpen().QuietBound.GraphInstantiateWithFlags(g.Native, 0)
	if r != driver.Success {
		return nil, r
	}
	g.Dev.Driver.Live.Graphs.Add(1)
	return &GraphExec{Dev: g.Dev, Native: native, held: g.held.use()}, nil
}

// Close destroys the graph when no call uses it.
func (g *Graph) Close() error {
	if _, last := g.Count.Close(); last {
		return g.destroy()
	}
	return nil
}

func (g *Graph) destroy() error {
	r := g.Dev.mustOpen().Quiet.GraphDestroy(g.Native)
	g.held.release()
	g.Dev.Driver.Live.Graphs.Add(-1)
	return failed(ignoreExit(r))
}

// Forgotten is called when the garbage collector has found the graph's owner. What the graph
// holds may take long to free, which cleanups must not wait for.
func (g *Graph) Forgotten() { g.Dev.forgotten("graph", g.Close) }

// Forgotten: see Graph.
func (x *GraphExec) Forgotten() { x.Dev.forgotten("graph", x.Close) }

// forgotten closes an object that the garbage collector has found, in the background.
func (d *Device) forgotten(what string, close func() error) {
	d.Driver.Live.Forgotten.Add(1)
	d.reaper.add(func() { d.Driver.closeFailed(what, close()) })
}

// GraphExec is a graph that can be launched.
type GraphExec struct {
	refs.Count
	Dev    *Device
	Native driver.GraphExec
	held   *Held
	mu     sync.Mutex // the driver wants one call for an executable graph at a time
}

// enter takes a reference and the turn.
func (x *GraphExec) enter() error {
	if !x.Acquire() {
		return closedError("the executable graph")
	}
	x.mu.Lock()
	return nil
}

// exit ends the turn, and gives the reference back. The caller is in no stream: what the graph
// holds may have to be freed.
func (x *GraphExec) exit() {
	x.mu.Unlock()
	if x.Release() {
		x.Dev.Driver.closeFailed("graph", x.destroy())
	}
}

// on enters s and x, for a call on both.
func (x *GraphExec) on(s *Stream, f func() driver.Result) error {
	if s.Dev.Driver != x.Dev.Driver {
		return errTwoDrivers
	}
	if err := x.enter(); err != nil {
		return err
	}
	defer x.exit()
	if err := s.enterUncaptured(); err != nil {
		return err
	}
	defer s.leave()
	return failed(f())
}

// Launch enqueues the graph's work on s.
func (x *GraphExec) Launch(s *Stream) error {
	return x.on(s, func() driver.Result {
		calls := &s.Dev.Driver.hostCalls
		for _, c := range x.held.calls {
			calls.expect(c)
		}
		r := s.work.GraphLaunch(x.Native, s.Native)
		for _, c := range x.held.calls {
			calls.launched(c, r == driver.Success)
		}
		if r == driver.Success {
			for m := range x.held.memory {
				m.used(s)
			}
			s.flushes.later()
		}
		return r
	})
}

// Upload does what the first launch on s would do besides its work.
func (x *GraphExec) Upload(s *Stream) error {
	return x.on(s, func() driver.Result { return s.work.GraphUpload(x.Native, s.Native) })
}

// Update gives later launches the parameters of g.
func (x *GraphExec) Update(g *Graph) error {
	if g.Dev.Driver != x.Dev.Driver {
		return errTwoDrivers
	}
	old, err := x.update(g)
	if old != nil { // launches in flight have noted what they use
		old.release()
	}
	return err
}

// update is Update, and returns what x does not hold any more.
func (x *GraphExec) update(g *Graph) (old *Held, err error) {
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.exit()
	if err := x.enter(); err != nil {
		return nil, err
	}
	defer x.exit()
	_, why, r := x.Dev.mustOpen().QuietBound.GraphExecUpdate(x.Native, g.Native)
	if r == driver.ErrorGraphExecUpdateFailure {
		return nil, &Refusal{Code: r, Detail: fmt.Sprintf("%v; instantiate the new graph instead", why)}
	}
	if r != driver.Success {
		return nil, r
	}
	old = x.held
	x.held = g.held.use()
	return old, nil
}

// Close destroys the executable graph when no call uses it.
func (x *GraphExec) Close() error {
	if _, last := x.Count.Close(); last {
		return x.destroy()
	}
	return nil
}

func (x *GraphExec) destroy() error {
	r := x.Dev.mustOpen().Quiet.GraphExecDestroy(x.Native)
	x.held.release()
	x.Dev.Driver.Live.Graphs.Add(-1)
	return failed(ignoreExit(r))
}
