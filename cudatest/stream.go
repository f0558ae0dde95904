package cudatest

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// stream is a stream of a context, or its legacy default stream.
type stream struct {
	ctx      *context
	handle   driver.Stream
	id       uint64
	flags    uint32
	priority int32
	legacy   bool
	tail     *op // the last operation
	launchQueue
	sequence *order.Sequence

	capture  *capture
	frontier []*node // what the next node of the capture comes after
	made     callsite.Site
}

// Handles are numbered and never given out again.
const (
	streamBase uint64 = 0x55d0_1000_0000
	streamStep uint64 = 0x40
)

// blocking reports whether s synchronises with the legacy default stream.
func (s *stream) blocking() bool { return !s.legacy && s.flags&driver.StreamNonBlocking == 0 }

// before appends to ops the unfinished operations that whatever is enqueued now
// comes after.
func (s *stream) before(ops []*op) []*op {
	if s.tail.pending() {
		ops = append(ops, s.tail)
	}
	switch {
	case s.legacy:
		for b := range s.ctx.streams {
			if b.blocking() && b.tail.pending() {
				ops = append(ops, b.tail)
			}
		}
		for _, o := range s.ctx.orphans {
			if o.blocking && o.op.pending() {
				ops = append(ops, o.op)
			}
		}
	case s.blocking() && s.ctx.legacy.tail.pending():
		ops = append(ops, s.ctx.legacy.tail)
	}
	return ops
}

// enqueue puts o at the end of s, or a node for it into the capture of s.
func (s *stream) enqueue(o *op) driver.Result {
	for {
		if r := s.implicit(); r != driver.Success {
			return r
		}
		switch {
		case s.capture != nil:
			return s.capture.add(s, &node{op: o})
		case o.kind == valueOp || o.kind == holdOp:
			s.submit(o)
			return driver.Success
		case s.room():
			s.submit(o)
			s.queue = append(s.queue, o)
			return driver.Success
		}
		if r := s.awaitRoom(); r != driver.Success {
			return r
		}
	}
}

// submit is enqueue for a stream that is not capturing.
func (s *stream) submit(o *op, also ...*op) {
	var buf [4]*op
	o.ctx = s.ctx
	s.follow()
	o.at = s.sequence.Next()
	g := s.ctx.proc.gpu
	s.tail = g.submit(o, append(s.before(buf[:0]), also...)...)
	g.rouse()
}

// follow is called before something is put on s: it comes after the default stream's work, or,
// in the default stream, after that of all streams that synchronise with it.
func (s *stream) follow() {
	switch {
	case s.legacy:
		s.sequence.Join(s.synchronising()...)
		s.ctx.left = order.Point{}
	case s.blocking():
		s.sequence.Join(s.ctx.legacy.sequence.Last())
	}
}

// synchronising returns points after the work of all streams that synchronise with s, the
// default stream.
func (s *stream) synchronising() []order.Point {
	points := []order.Point{s.ctx.left}
	for b := range s.ctx.streams {
		if b.blocking() {
			points = append(points, b.sequence.Last())
		}
	}
	return points
}

// point returns an operation that is done when all that is in s now is done; nil
// if it is already. The point is itself work of s, which others may have to wait for.
func (s *stream) point() *op {
	var buf [4]*op
	ops := s.before(buf[:0])
	switch {
	case len(ops) == 0:
		return nil
	case len(ops) > 1:
		s.submit(&op{})
	default:
		s.tail = ops[0]
	}
	return s.tail
}

// stream finds the stream of a handle. fn names the caller.
func (p *Process) stream(fn string, h driver.Stream) (*stream, driver.Result) {
	if r := p.readyTo(fn); r != driver.Success {
		return nil, r
	}
	switch h {
	case 0, driver.StreamLegacy, driver.StreamPerThread:
		c, r := p.current(fn)
		switch {
		case r != driver.Success:
			return nil, r
		case h == driver.StreamPerThread:
			return nil, driver.ErrorNotSupported
		}
		return c.legacy, driver.Success
	}
	s := p.streams[h]
	if s == nil {
		p.badHandle(fn, "stream", uint64(h), streamBase, streamStep, p.gpu.streams)
		return nil, driver.ErrorInvalidHandle
	}
	if s.ctx.destroyed {
		return nil, driver.ErrorContextIsDestroyed
	}
	return s, driver.Success
}

// on finds a stream for a call at the present, which a broken context refuses, even
// where the call only asks how the stream was made.
func (p *Process) on(fn string, h driver.Stream) (*stream, driver.Result) {
	s, r := p.stream(fn, h)
	if r != driver.Success {
		return nil, r
	}
	p.gpu.advance()
	return s, s.ctx.fault
}

func (p *Process) streamCreateWithPriority(flags uint32, priority int32) (driver.Stream, driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awaitUnblocked()
	c, r := p.here("StreamCreateWithPriority")
	if r != driver.Success {
		return 0, r
	}
	if flags&^driver.StreamNonBlocking != 0 {
		return 0, driver.ErrorInvalidValue
	}
	g.streams++
	s := &stream{
		ctx:      c,
		handle:   driver.Stream(g.handle(streamBase, streamStep, g.streams)),
		id:       g.streams,
		flags:    flags,
		priority: min(max(priority, greatestPriority), leastPriority),
		sequence: g.order.NewSequence(),
		made:     callsite.Caller(),
	}
	p.streams[s.handle] = s
	c.streams[s] = struct{}{}
	return s.handle, driver.Success
}

// streamDestroy may run in a cleanup: see the package's comment.
func (p *Process) streamDestroy(h driver.Stream) driver.Result {
	defer p.enter("StreamDestroy", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return r
	}
	s := p.streams[h]
	if s == nil {
		p.badHandle("StreamDestroy", "stream", uint64(h), streamBase, streamStep, p.gpu.streams)
		return driver.ErrorInvalidHandle
	}
	delete(p.streams, h)
	delete(s.ctx.streams, s)
	if s.capture != nil {
		s.capture.leave(s)
	}
	if s.ctx.destroyed {
		return driver.ErrorContextIsDestroyed
	}
	s.ctx.adopt(s)
	s.ctx.gone = order.Merge(s.ctx.gone, s.sequence.Last())
	if s.blocking() {
		s.ctx.left = order.Merge(s.ctx.left, s.sequence.Last())
	}
	s.sequence.Retire()
	return s.ctx.fault
}

func (p *Process) streamGetPriority(h driver.Stream) (int32, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamGetPriority", h)
	if r != driver.Success {
		return 0, r
	}
	return s.priority, driver.Success
}

func (p *Process) streamGetFlags(h driver.Stream) (uint32, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamGetFlags", h)
	if r != driver.Success {
		return 0, r
	}
	return s.flags, driver.Success
}

func (p *Process) streamGetCtx(h driver.Stream) (driver.Context, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamGetCtx", h)
	if r != driver.Success {
		return 0, r
	}
	return s.ctx.handle, driver.Success
}

func (p *Process) streamGetID(h driver.Stream) (uint64, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("StreamGetID", h)
	if r != driver.Success {
		return 0, r
	}
	return s.id, driver.Success
}

// watch finds a stream for a call that asks or waits for its end, and the
// operations that the call is about.
func (p *Process) watch(fn string, h driver.Stream) (*stream, []*op, driver.Result) {
	s, r := p.on(fn, h)
	if r == driver.Success && s.blocked > 0 {
		s.awaitUnblocked()
		s, r = p.on(fn, h)
	}
	switch {
	case r != driver.Success:
		return nil, nil, r
	case s.capture != nil:
		s.capture.kill()
		return nil, nil, driver.ErrorStreamCaptureUnsupported
	case p.forbidden():
		return nil, nil, driver.ErrorStreamCaptureUnsupported
	}
	if r := s.implicit(); r != driver.Success {
		return nil, nil, r
	}
	if s.legacy { // it stands for the blocking streams too
		return s, s.before(nil), driver.Success
	}
	if s.tail.pending() {
		return s, []*op{s.tail}, driver.Success
	}
	return s, nil, driver.Success
}

// watched returns the point in the order that such a call is about.
func (s *stream) watched() order.Point {
	if !s.legacy {
		return s.sequence.Last()
	}
	return order.Merge(append(s.synchronising(), s.sequence.Last())...)
}

func (p *Process) streamQuery(h driver.Stream) driver.Result {
	defer p.enter("StreamQuery", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, ops, r := p.watch("StreamQuery", h)
	switch {
	case r != driver.Success:
		return r
	case len(ops) > 0:
		return driver.ErrorNotReady
	}
	p.gpu.order.HostWaited(s.watched())
	return driver.Success
}

func (p *Process) streamSynchronize(h driver.Stream) driver.Result {
	defer p.enter("StreamSynchronize", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, ops, r := p.watch("StreamSynchronize", h)
	if r != driver.Success {
		return r
	}
	at := s.watched()
	for _, o := range ops {
		p.gpu.await(s.ctx, o)
	}
	s.ctx.hostWaited(at)
	return s.ctx.answer()
}
