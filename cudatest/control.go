package cudatest

import (
	"fmt"
	"sync"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Stream names a stream to the methods of [GPU] that act on one. A *cuda.Stream
// is one; [Handle] makes one of a handle, [GPU.Default] and [Process.Default]
// name a device's default stream.
//
// Handles of created streams are unique on a machine, so they say by themselves
// which device and process they belong to. Handle 0 means the default stream of
// the first process's only device; where there are more devices it is refused
// with a panic.
type Stream interface{ Handle() driver.Stream }

// Handle makes a [Stream] of a handle.
type Handle driver.Stream

// Handle returns h.
func (h Handle) Handle() driver.Stream { return driver.Stream(h) }

// defaultStream is the default stream of a device in a process.
type defaultStream struct {
	proc   *Process
	device int
}

func (defaultStream) Handle() driver.Stream { return 0 }

// Default returns the default stream of a device in the first process.
func (g *GPU) Default(device int) Stream { return g.main.Default(device) }

// Default returns the default stream of a device in the process. It panics if
// there is no such device.
func (p *Process) Default(device int) Stream {
	if device < 0 || device >= len(p.contexts) {
		panic(fmt.Sprintf("cudatest: no device %d: there are %d", device, len(p.contexts)))
	}
	return defaultStream{p, device}
}

// find returns the stream that s names; it panics if there is none, because
// that is a mistake in the test itself.
func (g *GPU) find(s Stream) *stream {
	d, ok := s.(defaultStream)
	h := s.Handle()
	if !ok && (h == 0 || h == driver.StreamLegacy) {
		if len(g.devices) != 1 {
			panic("cudatest: handle 0 does not say which device's default stream is meant: use GPU.Default")
		}
		d, ok = defaultStream{g.main, 0}, true
	}
	if ok {
		if d.proc.gpu != g {
			panic("cudatest: the default stream of another GPU")
		}
		return d.proc.primary(d.device).legacy
	}
	for _, p := range g.procs {
		if s := p.streams[h]; s != nil {
			return s
		}
	}
	panic(fmt.Sprintf("cudatest: no stream has the handle %#x", h))
}

// put enqueues o for the methods below.
func (g *GPU) put(s Stream, o *op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance()
	if r := g.find(s).enqueue(o); r != driver.Success {
		panic(fmt.Sprintf("cudatest: cannot enqueue on the stream %#x: %v", s.Handle(), r))
	}
}

// Run enqueues work on s that takes d and does nothing else. It does not block.
func (g *GPU) Run(s Stream, d time.Duration) {
	g.put(s, &op{dur: int64(max(d, 0))})
}

// Hold enqueues work on s that ends when release is called, and not before. It
// does not block. Calling release again does nothing. In a synctest bubble,
// release must be called in the bubble. Captured in a graph, it holds every
// launch of it until then, and none after.
func (g *GPU) Hold(s Stream) (release func()) {
	at := &gate{}
	g.put(s, &op{kind: holdOp, gate: at})
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, inside := g.clock(); !inside {
			panic("cudatest: a hold was released outside the synctest bubble of its GPU")
		}
		g.advance()
		at.open = true
		for _, o := range at.waiting {
			g.settle(o)
		}
		at.waiting = nil
		g.advance()
		g.rouse()
	})
}

// Fault enqueues work on s that fails with code, which should be a sticky one
// ([driver.Result.Sticky]). Once it has been reached, its context is broken for
// good: work that stood behind it has no effect, and every call on the device
// answers code.
func (g *GPU) Fault(s Stream, code driver.Result) {
	if code == driver.Success {
		panic("cudatest: a fault with the code Success")
	}
	// Visible, because it ends waits.
	g.put(s, &op{kind: faultOp, code: code, visible: true})
}
