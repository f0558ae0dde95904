package cuda

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// GraphExec is a [Graph] that can be launched, again and again. Launching a graph
// costs the host little more than enqueueing one piece of work, however many
// nodes it has. Any number of goroutines may share it; launches of one GraphExec
// run one after the other, whatever streams they are on.
type GraphExec struct {
	h       *handle
	mu      sync.Mutex // the driver wants one call for an executable graph at a time
	cleanup runtime.Cleanup
}

func newGraphExec(d *Device, native driver.GraphExec, k *held) *GraphExec {
	k.users.Add(1)
	x := &GraphExec{h: newHandle(d, kindGraphExec, uint64(native))}
	x.h.held = k
	x.cleanup = runtime.AddCleanup(x, (*handle).forget, x.h)
	return x
}

// Device returns the device of the stream that was captured.
func (x *GraphExec) Device() *Device {
	if x == nil || x.h == nil {
		return nil
	}
	return x.h.dev
}

// Handle returns the native CUgraphExec, for as long as x is open and reachable.
func (x *GraphExec) Handle() driver.GraphExec {
	if x == nil || x.h == nil {
		return 0
	}
	return driver.GraphExec(x.h.native)
}

// Launch enqueues on s all the work of the graph (cuGraphLaunch): it begins when
// what is in s is done, and what is enqueued on s later comes after all of it. It
// returns at once and allocates nothing. s cannot be capturing ([ErrCapturing]).
func (x *GraphExec) Launch(s *Stream) error {
	const op = "graph launch"
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	if err := x.acquire(op, s); err != nil {
		return err
	}
	defer x.release()
	native := x.Handle()
	x.h.held.expectCalls()
	r := s.call(func(api *driver.API, h driver.Stream) driver.Result { return api.GraphLaunch(native, h) })
	x.h.held.askedForCalls(r == driver.Success)
	if r != driver.Success {
		return failure(op, r)
	}
	s.h.effects.note() // its kernels may print
	for _, h := range x.h.held.handles {
		h.usedOn(s, nil)
	}
	return nil
}

// Upload does on s what the first launch of the graph would do besides its work
// (cuGraphUpload), so that the first launch is as fast as the later ones. It
// returns at once.
func (x *GraphExec) Upload(s *Stream) error {
	const op = "graph upload"
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	if err := x.acquire(op, s); err != nil {
		return err
	}
	defer x.release()
	native := x.Handle()
	return check(op, s.call(func(api *driver.API, h driver.Stream) driver.Result { return api.GraphUpload(native, h) }))
}

// Update gives the launches from now on the parameters of g, such as other
// buffers and kernel arguments, which is much faster than instantiating g
// (cuGraphExecUpdate). g must have the same nodes in the same order, captured by
// the same calls; otherwise the error matches driver.ErrorGraphExecUpdateFailure,
// and x is as it was.
func (x *GraphExec) Update(g *Graph) error {
	const op = "graph update"
	if err := g.acquire(op); err != nil {
		return err
	}
	defer g.release()
	if err := x.acquire(op, nil); err != nil {
		return err
	}
	defer x.release()
	if g.h.dev.driver != x.h.dev.driver {
		return twoDrivers(op)
	}
	var why driver.GraphExecUpdateResult
	r := x.h.dev.call(func(api *driver.API) (r driver.Result) {
		_, why, r = api.GraphExecUpdate(x.Handle(), g.Handle())
		return r
	})
	if r == driver.ErrorGraphExecUpdateFailure {
		return &Error{Op: op, Code: r, Detail: fmt.Sprintf("%v; instantiate the new graph instead", why)}
	}
	if r != driver.Success {
		return failure(op, r)
	}
	// Launches in flight hold what they use by the marks they made.
	old := x.h.held
	g.held.users.Add(1)
	x.h.held = g.held
	old.release()
	return nil
}

// Close destroys the executable graph (cuGraphExecDestroy). Launches in flight run
// on to their end, and it does not wait for them; but if it is the last to hold
// closed memory of [Alloc], freeing that does. Closing again is nil.
func (x *GraphExec) Close() error {
	if x == nil || x.h == nil {
		return nil
	}
	x.cleanup.Stop()
	return check("graph close", x.h.close())
}

// String names the executable graph by device and handle.
func (x *GraphExec) String() string {
	if x == nil || x.h == nil {
		return "cuda.GraphExec(nil)"
	}
	return fmt.Sprintf("cuda.GraphExec(device %d, %#x)", x.h.dev.index, x.h.native)
}

// acquire holds the graph, for work on s if that is not nil, and keeps other
// goroutines' calls off it.
func (x *GraphExec) acquire(op string, s *Stream) error {
	if x == nil || x.h == nil {
		return invalid(op, "the graph is nil")
	}
	if s != nil {
		if s.dev.driver != x.h.dev.driver {
			return twoDrivers(op)
		}
		if err := s.notCapturing(op, false); err != nil {
			return err
		}
	}
	if !x.h.acquire() {
		return closed(op, "the executable graph")
	}
	x.mu.Lock()
	return nil
}

func (x *GraphExec) release() {
	x.mu.Unlock()
	x.h.release()
	runtime.KeepAlive(x)
}
