package cuda

import (
	"errors"
	"runtime"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
)

// Capture calls f and returns a graph of the work that f enqueues on s, instead
// of running it (cuStreamBeginCapture, cuStreamEndCapture). Other streams join
// the capture by waiting for an event recorded in it, or by WaitStream, and s
// must have waited for all of them when f returns. s must have been created, not
// be a default stream.
//
// Inside, record and wait order the graph's nodes, and the buffers that it uses
// are kept until the graph is closed. Nothing that waits for the captured streams
// is possible: it fails with [ErrCapturing]. Copies from and to Go slices and
// AllocAsync on them fail so too.
//
// Captures are in the driver's relaxed mode, as the stricter modes look at threads. The
// library itself refuses what a capture would not survive, for its streams and events. Any
// number of goroutines may use those; their calls take turns, because the driver crashes
// otherwise. A call that has begun when the
// capture begins or ends is wholly outside it or wholly inside, and Capture waits for
// calls under way on s before it begins. Calls on other streams and events are not affected.
//
// f runs on the calling goroutine. If f fails, its error is returned and the graph dropped;
// if f panics, the capture is ended first. The graph must be closed.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	const op = "stream capture"
	switch {
	case f == nil:
		return nil, invalid(op, "the function is nil")
	case !s.usable():
		return nil, nilStream(op)
	}
	k, err := s.native.BeginCapture()
	if err != nil {
		return nil, failed(op, err)
	}
	ended := false
	defer func() { // f panicked or called runtime.Goexit
		if !ended {
			if g, err := k.End(); err == nil {
				_ = g.Close()
			}
		}
	}()
	why := f()
	ended = true
	n, err := k.End()
	runtime.KeepAlive(s)
	switch {
	case why == nil && err == nil:
		g := &Graph{native: n}
		g.cleanup = runtime.AddCleanup(g, (*native.Graph).Forgotten, n)
		return g, nil
	case why == nil:
		return nil, failed(op, err)
	case err == nil:
		return nil, errors.Join(why, failed(op, n.Close()))
	}
	if err := failed(op, err); !errors.Is(err, driver.ErrorStreamCaptureUnjoined) {
		return nil, errors.Join(why, err)
	}
	return nil, why // f did not come to the joining
}

// LaunchHostFunc enqueues on s a call of f on the host (cuLaunchHostFunc). It
// returns at once. f is called when everything that was enqueued on s before is
// done, and what is enqueued later waits until f has returned. It is called
// exactly once, with nil; or, if the device fails before its turn, with the error,
// on another goroutine and no longer in order. In a captured stream f becomes a
// node of the graph and is called once in each launch of it.
//
// f runs on a thread of the driver, which runs all host functions of the process
// one at a time. It must be short, and must not wait for work on the device, allocate, free, or
// enqueue anything but records of events: the driver refuses
// most of that, and the effect of the rest is undefined. A panic in f is caught and goes to [Driver.OnCleanupError]. It must not call
// runtime.Goexit, as a test's FailNow does: the thread is not Go's.
//
// The stream is blocked from the end of the work before until f has returned and
// the driver has noticed. To learn that work is done, wait with SynchronizeContext
// or take Done, which cost the device nothing.
func (s *Stream) LaunchHostFunc(f func(error)) error {
	const op = "host function"
	switch {
	case f == nil:
		return invalid(op, "the function is nil")
	case !s.usable():
		return nilStream(op)
	}
	err := s.native.LaunchHostFunc(func(err error) { f(failed(op, err)) })
	runtime.KeepAlive(s)
	return failed(op, err)
}
