package cudatest

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// context is the primary context of a device in a process. A context that is
// retained anew after its release is another one, with the same handle.
type context struct {
	proc      *Process
	dev       *device
	ordinal   int // of the device, as the process numbers them
	handle    driver.Context
	refs      int
	destroyed bool

	legacy  *stream
	streams map[*stream]struct{} // those created and not destroyed
	orphans []orphan             // work that destroyed streams left
	gone    order.Point          // after the work of all destroyed streams
	left    order.Point          // after that of those which the default stream has yet to follow

	calling bool // a host function runs

	peers map[*context]bool // those whose plain memory its kernels may touch

	fault   driver.Result // what a failed operation made of the context
	faultAt int64         // when that will be; never if it will not
}

// orphan is the last work of a stream that was destroyed before it was done.
type orphan struct {
	op       *op
	blocking bool
}

// contextBase is where context handles begin.
const contextBase uint64 = 0x58d0_0800_0000

func (p *Process) contextHandle(ordinal int) driver.Context {
	return driver.Context(p.gpu.handle(contextBase, 0x1000, uint64(p.num*deviceLimit+ordinal)))
}

// ordinal returns the device of a context handle, or -1.
func (p *Process) ordinal(h driver.Context) int {
	for i := range p.devices {
		if p.contextHandle(i) == h {
			return i
		}
	}
	return -1
}

func (p *Process) devicePrimaryCtxRetain(d driver.Device) (driver.Context, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return 0, r
	}
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance()
	c := p.primary(int(d))
	if c.fault != driver.Success && c.refs == 0 { // it cannot be made anew
		return 0, c.fault
	}
	c.refs++
	return c.handle, driver.Success
}

// primary returns the primary context of a device, which need not be retained.
func (p *Process) primary(ordinal int) *context {
	c := p.contexts[ordinal]
	if c == nil {
		c = &context{
			proc:    p,
			dev:     p.devices[ordinal],
			ordinal: ordinal,
			handle:  p.contextHandle(ordinal),
			streams: map[*stream]struct{}{},
			faultAt: never,
		}
		p.gpu.streams++
		c.legacy = &stream{ctx: c, id: p.gpu.streams, legacy: true, sequence: p.gpu.order.NewSequence()}
		p.contexts[ordinal] = c
	}
	return c
}

// retained finds the context of a handle. fn names the caller.
func (p *Process) retained(fn string, h driver.Context) (*context, driver.Result) {
	i := p.ordinal(h)
	if i < 0 || p.contexts[i] == nil || p.contexts[i].refs == 0 {
		p.misuse(fn, "no context has the handle %#x, or it was released", h)
		return nil, driver.ErrorInvalidContext
	}
	return p.contexts[i], p.contexts[i].fault
}

// devicePrimaryCtxRelease may run in a cleanup: see the package's comment.
func (p *Process) devicePrimaryCtxRelease(d driver.Device) driver.Result {
	if r := p.device(d); r != driver.Success {
		return r
	}
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c := p.contexts[d]
	if c == nil || c.refs == 0 {
		p.misuse("DevicePrimaryCtxRelease", "the context was not retained")
		return driver.ErrorInvalidContext
	}
	if c.refs--; c.refs > 0 {
		return driver.Success
	}
	// Its streams, events and memory stay listed: they were leaked.
	c.destroyed = true
	c.legacy.sequence.Retire()
	p.gpu.broadcast()
	if c.fault == driver.Success {
		p.contexts[d] = nil // a broken context stays: see devicePrimaryCtxRetain
	}
	for _, b := range p.blocks {
		if b.ctx == c {
			b.release()
		}
	}
	p.dropPool(c.dev)
	return driver.Success
}

func (p *Process) devicePrimaryCtxGetState(d driver.Device) (flags uint32, active int32, r driver.Result) {
	if r := p.device(d); r != driver.Success {
		return 0, 0, r
	}
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if c := p.contexts[d]; c != nil && c.refs > 0 {
		active = 1
	}
	return 0, active, driver.Success
}

// The priorities of a real device; numerically lower is more urgent.
const (
	leastPriority    = 0
	greatestPriority = -5
)

func (p *Process) ctxGetStreamPriorityRange() (least, greatest int32, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.here("CtxGetStreamPriorityRange"); r != driver.Success {
		return 0, 0, r
	}
	return leastPriority, greatestPriority, driver.Success
}

func (p *Process) ctxSynchronize() driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("CtxSynchronize")
	if r != driver.Success {
		return r
	}
	if p.capturedIn(c) || p.forbidden() {
		return driver.ErrorStreamCaptureUnsupported
	}
	c.drain()
	return c.answer()
}

// ctxRecordEvent makes the event stand for all work that is in the context now.
// Nothing is put into a stream, so nothing waits for the record itself, and it
// takes no time where the event has timing.
func (p *Process) ctxRecordEvent(ch driver.Context, h driver.Event) driver.Result {
	g := p.gpu
	defer p.enter("CtxRecordEvent", 0, h).leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := p.readyTo("CtxRecordEvent"); r != driver.Success {
		return r
	}
	g.advance()
	c, r := p.retained("CtxRecordEvent", ch)
	if r != driver.Success {
		return r
	}
	e, r := p.event("CtxRecordEvent", h)
	switch {
	case r != driver.Success:
		return r
	case e.ctx != c:
		p.misuse("CtxRecordEvent", "event %#x of device %d for the context of device %d", h, e.ctx.ordinal, c.ordinal)
		return driver.ErrorInvalidHandle
	case p.capturedIn(c):
		return driver.ErrorStreamCaptureUnsupported
	}
	ops := c.work()
	if e.hangs() {
		ops = append(ops, e.op)
	}
	switch {
	case len(ops) > 1 || e.timing():
		e.recorded(g.submit(&op{ctx: c}, ops...), c.end())
		g.rouse()
	case len(ops) == 1:
		e.recorded(ops[0], c.end())
	default:
		e.recorded(nil, c.end())
	}
	return driver.Success
}

// drain blocks until all work that is in the context now is done.
func (c *context) drain() {
	at := c.end()
	for _, o := range c.work() {
		c.proc.gpu.await(c, o)
	}
	c.hostWaited(at)
}

// end returns the point in the order after all that is in the context now.
func (c *context) end() order.Point {
	points := []order.Point{c.legacy.sequence.Last(), c.gone}
	for s := range c.streams {
		points = append(points, s.sequence.Last())
	}
	return order.Merge(points...)
}

// hostWaited is called when await has returned for all work before at.
func (c *context) hostWaited(at order.Point) {
	if _, inside := c.proc.gpu.clock(); inside && c.fault == driver.Success && !c.proc.dying {
		c.proc.gpu.order.HostWaited(at)
	}
}

// answer is what a call that has waited answers.
func (c *context) answer() driver.Result {
	if c.proc.dying {
		return driver.ErrorDeinitialized
	}
	c.proc.shrinkPools()
	return c.fault
}

// work returns the last unfinished operation of each stream.
func (c *context) work() (ops []*op) {
	if c.legacy.tail.pending() {
		ops = append(ops, c.legacy.tail)
	}
	for s := range c.streams {
		if s.tail.pending() {
			ops = append(ops, s.tail)
		}
	}
	for _, o := range c.orphans {
		if o.op.pending() {
			ops = append(ops, o.op)
		}
	}
	return ops
}

// adopt keeps the work that a destroyed stream leaves.
func (c *context) adopt(s *stream) {
	if !s.tail.pending() {
		return
	}
	if len(c.orphans) == cap(c.orphans) {
		kept := c.orphans[:0]
		for _, o := range c.orphans {
			if o.op.pending() {
				kept = append(kept, o)
			}
		}
		clear(c.orphans[len(kept):])
		c.orphans = kept
	}
	c.orphans = append(c.orphans, orphan{s.tail, s.blocking()})
}
