package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// CaptureMode says what the rest of the process may do during a capture.
type CaptureMode int

const (
	// CaptureRelaxed forbids nothing. It is the default, because goroutines move
	// between threads and the other modes look at threads.
	CaptureRelaxed CaptureMode = iota
	// CaptureThreadLocal forbids the thread of the capturing function the driver's
	// calls that could wait for the device or free memory: they fail and end the
	// capture. Calls of this package that are safe beside a capture are not such.
	CaptureThreadLocal
	// CaptureGlobal forbids them to all threads of the process, those of other
	// libraries among them.
	CaptureGlobal
)

// CaptureOptions say how work is captured. The zero value is the recommended one.
type CaptureOptions struct {
	Mode CaptureMode
}

// Capture calls f and returns a graph of the work that f enqueues on s, instead
// of running it (cuStreamBeginCapture, cuStreamEndCapture). Other streams join
// the capture by waiting for an event recorded in it, or by WaitStream, and s
// must have waited for all of them when f returns. s must have been created, not
// be a default stream.
//
// Inside, record and wait order the graph's nodes, and the buffers that it uses
// are kept until the graph is closed. Nothing that waits for the captured streams
// is possible: it fails with [ErrCapturing]. Copies from and to Go slices and
// AllocAsync on them fail so too. But a Query that another goroutine has begun
// when the capture begins, of s or, in CaptureGlobal, of any stream or event, may still
// end it.
//
// f runs on the calling goroutine, locked to its thread unless the mode is
// relaxed. If f fails, its error is returned and the graph dropped; if f panics,
// the capture is ended first. The graph must be closed.
func (s *Stream) Capture(opts *CaptureOptions, f func() error) (*Graph, error) {
	const op = "stream capture"
	if opts == nil {
		opts = &CaptureOptions{}
	}
	if f == nil {
		return nil, invalid(op, "the function is nil")
	}
	if err := s.acquire(op); err != nil {
		return nil, err
	}
	defer s.h.release()
	if s.h.native == 0 {
		return nil, invalid(op, "a default stream cannot be captured: create one")
	}
	mode, ok := map[CaptureMode]driver.CaptureMode{
		CaptureRelaxed:     driver.CaptureModeRelaxed,
		CaptureThreadLocal: driver.CaptureModeThreadLocal,
		CaptureGlobal:      driver.CaptureModeGlobal,
	}[opts.Mode]
	if !ok {
		return nil, invalid(op, fmt.Sprintf("there is no capture mode %d", opts.Mode))
	}
	if opts.Mode != CaptureRelaxed {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	c, err := s.beginCapture(op, mode)
	if err != nil {
		return nil, err
	}
	ended := false
	defer func() { // f panicked or called runtime.Goexit
		if !ended {
			if g, err := s.endCapture(op, c); err == nil {
				_ = g.Close()
			}
		}
	}()
	failed := f()
	ended = true
	g, err := s.endCapture(op, c)
	switch {
	case failed == nil:
		return g, err
	case err == nil:
		return nil, errors.Join(failed, g.Close())
	case errors.Is(err, driver.ErrorStreamCaptureUnjoined):
		return nil, failed // f did not come to the joining
	}
	return nil, errors.Join(failed, err)
}

func (s *Stream) beginCapture(op string, mode driver.CaptureMode) (*capture, error) {
	d := s.dev.driver
	c := &capture{devices: []*Device{s.dev}}
	d.captures.active.Add(1)
	s.h.settle()
	r := d.captures.begin(c, s, mode)
	if r != driver.Success {
		d.captureOver(c)
		e := failure(op, r).(*Error)
		if r == driver.ErrorIllegalState {
			e.Err, e.Detail = ErrCapturing, "one capture of a stream at a time"
		}
		return nil, e
	}
	return c, nil
}

// begin begins k on s.
func (c *captures) begin(k *capture, s *Stream, mode driver.CaptureMode) driver.Result {
	c.beginning.Lock()
	defer c.beginning.Unlock()
	begin := func(api *driver.API, h driver.Stream) (r driver.Result) {
		status := driver.CaptureNone
		if status, r = api.StreamIsCapturing(h); r == driver.Success && status != driver.CaptureNone {
			return driver.ErrorIllegalState
		}
		if r = api.StreamBeginCapture(h, mode); r != driver.Success {
			return r
		}
		if _, k.id, r = api.StreamGetCaptureInfo(h); r != driver.Success {
			if g, ended := api.StreamEndCapture(h); ended == driver.Success {
				api.GraphDestroy(g)
			}
		}
		return r
	}
	if r := c.alone(func() driver.Result { return s.h.onStreamAnyway(begin) }); r != driver.Success {
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[uint64]*capture{}
	}
	c.byID[k.id] = k
	return driver.Success
}

// captureOver notes that a capture has ended, or could not begin.
func (d *Driver) captureOver(c *capture) {
	for _, h := range d.captures.over(c) {
		freed := d.undisturbed(func() driver.Result { return h.mem.free(h) }) // parks again if need be
		if freed != driver.Success {
			h.cleanupFailed(freed)
		}
	}
}

func (s *Stream) endCapture(op string, c *capture) (*Graph, error) {
	d := s.dev.driver
	var native driver.Graph
	r := d.captures.alone(func() driver.Result {
		return s.h.onStreamAnyway(func(api *driver.API, h driver.Stream) (r driver.Result) {
			native, r = api.StreamEndCapture(h)
			return r
		})
	})
	d.captureOver(c)
	if r != driver.Success {
		c.release()
		e := failure(op, r).(*Error)
		switch r {
		case driver.ErrorStreamCaptureInvalidated:
			e.Detail = "something that a capture forbids was done during it: waiting for or querying a captured stream or event, or waiting on a captured stream for an event recorded outside; in the stricter modes any call that may wait"
		case driver.ErrorStreamCaptureUnjoined:
			e.Detail = "a stream that joined the capture was not waited for: call WaitStream for it at the end"
		}
		return nil, e
	}
	return newGraph(s.dev, native, &c.held), nil
}
