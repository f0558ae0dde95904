package cudatest

import "github.com/purecuda/cuda/driver"

// launchQueue is what a stream has taken and not done yet.
type launchQueue struct {
	queue   []*op
	blocked int // calls that wait for room
}

// room reports whether the launch queue of s has room for another operation.
func (s *stream) room() bool {
	depth := s.ctx.proc.gpu.conf.QueueDepth
	if len(s.queue) < depth {
		return true
	}
	kept := s.queue[:0]
	for _, o := range s.queue {
		if o.pending() {
			kept = append(kept, o)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
	return len(s.queue) < depth
}

// awaitRoom blocks the caller, as the driver does, until the stream has moved on.
func (s *stream) awaitRoom() driver.Result {
	g, p := s.ctx.proc.gpu, s.ctx.proc
	g.blocked++
	s.blocked++
	g.await(s.ctx, s.queue[0])
	g.blocked--
	s.blocked--
	g.broadcast()
	if p.dying {
		return driver.ErrorDeinitialized
	}
	return s.ctx.fault
}

// awaitUnblocked blocks the caller until no call waits for room in a launch queue: the driver
// makes no stream meanwhile.
func (g *GPU) awaitUnblocked() {
	for g.blocked > 0 {
		g.awaitChange()
	}
}

// awaitUnblocked blocks the caller until no call waits for room in the queue of s.
func (s *stream) awaitUnblocked() {
	for s.blocked > 0 {
		s.ctx.proc.gpu.awaitChange()
	}
}

// awaitChange blocks the caller until the next broadcast.
func (g *GPU) awaitChange() {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	<-changed
	g.mu.Lock()
}
