package cudatest

import (
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// capture is a stream capture that was begun and perhaps ended.
type capture struct {
	proc   *Process
	id     uint64
	origin *stream
	mode   driver.CaptureMode
	thread uint64 // that began it
	killed bool   // something forbidden invalidated it
	ended  bool

	streams []*stream // origin and those that joined
	loose   []*node   // the last nodes of streams that were destroyed
	nodes   []*node
}

// add makes n the next node of s.
func (c *capture) add(s *stream, n *node) driver.Result {
	if c.killed {
		return driver.ErrorStreamCaptureInvalidated
	}
	n.ctx, n.after = s.ctx, s.frontier
	s.frontier = []*node{n}
	c.nodes = append(c.nodes, n)
	return driver.Success
}

// mark makes e stand for the present point of s in the capture.
func (c *capture) mark(s *stream, e *event) driver.Result {
	if c.killed {
		return driver.ErrorStreamCaptureInvalidated
	}
	e.stir()
	*e.record = record{set: true, capture: c, nodes: s.frontier, ipc: e.ipc}
	return driver.Success
}

// join makes s wait for e, which was recorded in a capture: s becomes part of
// the capture if it is not.
func (s *stream) join(e *event) driver.Result {
	c := e.capture
	switch {
	case c.ended:
		if s.capture != nil {
			s.capture.kill()
		}
		return driver.ErrorInvalidValue
	case c.killed || s.capture != nil && s.capture.killed:
		return driver.ErrorStreamCaptureInvalidated
	case s.legacy:
		c.kill()
		return driver.ErrorStreamCaptureImplicit
	case s.capture != nil && s.capture != c:
		c.kill()
		s.capture.kill()
		return driver.ErrorStreamCaptureMerge
	case s.capture == nil:
		s.capture = c
		s.frontier = nil
		c.streams = append(c.streams, s)
	}
	union := slices.Clone(s.frontier)
	for _, n := range e.nodes {
		if !slices.Contains(union, n) {
			union = append(union, n)
		}
	}
	s.frontier = union
	return driver.Success
}

// kill invalidates the capture: only ending it is left.
func (c *capture) kill() { c.killed = true }

// leave is called when a stream of the capture is destroyed.
func (c *capture) leave(s *stream) {
	if s == c.origin {
		c.end()
		return
	}
	c.loose = append(c.loose, s.frontier...)
	c.streams = slices.DeleteFunc(c.streams, func(x *stream) bool { return x == s })
}

// end frees the capture's streams.
func (c *capture) end() {
	c.ended = true
	for _, s := range c.streams {
		s.capture, s.frontier = nil, nil
	}
	c.proc.captures = slices.DeleteFunc(c.proc.captures, func(x *capture) bool { return x == c })
}

// joined reports whether the origin comes after everything in the capture.
func (c *capture) joined() bool {
	reached := map[*node]bool{}
	todo := slices.Clone(c.origin.frontier)
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !reached[n] {
			reached[n] = true
			todo = append(todo, n.after...)
		}
	}
	ends := slices.Clone(c.loose)
	for _, s := range c.streams {
		ends = append(ends, s.frontier...)
	}
	return !slices.ContainsFunc(ends, func(n *node) bool { return !reached[n] })
}

func (p *Process) streamBeginCapture(h driver.Stream, mode driver.CaptureMode) driver.Result {
	defer p.visit(&visit{fn: "StreamBeginCapture", begins: true}, h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return r
	}
	if h == 0 || h == driver.StreamLegacy {
		return driver.ErrorStreamCaptureUnsupported
	}
	s, r := p.on("StreamBeginCapture", h)
	switch {
	case r != driver.Success:
		return r
	case mode < driver.CaptureModeGlobal || mode > driver.CaptureModeRelaxed:
		return driver.ErrorInvalidValue
	case s.capture != nil:
		return driver.ErrorIllegalState
	}
	p.captured++
	c := &capture{proc: p, id: p.captured, origin: s, mode: mode, thread: threadID(), streams: []*stream{s}}
	s.capture, s.frontier = c, nil
	p.captures = append(p.captures, c)
	return driver.Success
}

func (p *Process) streamEndCapture(h driver.Stream) (driver.Graph, driver.Result) {
	defer p.enter("StreamEndCapture", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamEndCapture", h)
	if s == nil {
		return 0, r
	}
	c := s.capture
	switch {
	case r != driver.Success: // the context is broken
		if c != nil && s == c.origin {
			c.end()
		}
		return 0, r
	case c == nil:
		return 0, driver.ErrorIllegalState
	case s != c.origin:
		c.kill()
		return 0, driver.ErrorStreamCaptureUnmatched
	}
	joined := c.joined()
	c.end()
	switch {
	case c.mode != driver.CaptureModeRelaxed && c.thread != threadID():
		return 0, driver.ErrorStreamCaptureWrongThread
	case c.killed:
		return 0, driver.ErrorStreamCaptureInvalidated
	case !joined:
		return 0, driver.ErrorStreamCaptureUnjoined
	}
	p.gpu.graphs++
	g := &graph{handle: driver.Graph(p.gpu.handle(graphBase, graphStep, p.gpu.graphs)), nodes: c.nodes, made: callsite.Caller()}
	p.graphs[g.handle] = g
	return g.handle, driver.Success
}

func (p *Process) streamIsCapturing(h driver.Stream) (driver.CaptureStatus, driver.Result) {
	status, _, r := p.capturing("StreamIsCapturing", h)
	return status, r
}

// streamGetCaptureInfo gives the streams of a capture one id, which no other of
// the process has, and 0 where there is no active capture.
func (p *Process) streamGetCaptureInfo(h driver.Stream) (driver.CaptureStatus, uint64, driver.Result) {
	defer p.enter("StreamGetCaptureInfo", h, 0).leave()
	return p.capturing("StreamGetCaptureInfo", h)
}

func (p *Process) capturing(fn string, h driver.Stream) (status driver.CaptureStatus, id uint64, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, h)
	switch {
	case r != driver.Success:
		return 0, 0, r
	case s.legacyCapture() != nil:
		return 0, 0, driver.ErrorStreamCaptureImplicit
	case s.capture == nil:
		return driver.CaptureNone, 0, driver.Success
	case s.capture.killed:
		return driver.CaptureInvalidated, 0, driver.Success
	}
	return driver.CaptureActive, s.capture.id, driver.Success
}

func (p *Process) threadExchangeStreamCaptureMode(mode driver.CaptureMode) (driver.CaptureMode, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return 0, r
	}
	if mode < driver.CaptureModeGlobal || mode > driver.CaptureModeRelaxed {
		return 0, driver.ErrorInvalidValue
	}
	t := p.thread(true)
	previous := t.mode
	t.mode = mode
	p.tidy(t)
	return previous, driver.Success
}
