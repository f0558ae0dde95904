package cudatest

import (
	"time"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// event is an event of a context.
type event struct {
	ctx    *context
	handle driver.Event
	flags  uint32
	*record
	imported bool // opened from another process's handle
	made     callsite.Site
}

// record is the point that an event stands for. An event and those opened from
// its IPC handle share one.
type record struct {
	set     bool // recorded at all
	op      *op  // done when the event is; nil if it was at once
	at      order.Point
	timed   bool
	capture *capture // in which it was recorded
	nodes   []*node  // and where in it
	ipc     uint64   // its number in GPU.exports, if it has one
	slept   bool     // sleepers want to hear when it changes
}

const (
	eventBase uint64 = 0x56d0_4000_0000
	eventStep uint64 = 0x40
)

// tick is how long recording an event with timing takes, which is the
// resolution of a real one: of two records in order, the second is later.
const tick = 500 * time.Nanosecond

// event finds the event of a handle. fn names the caller.
func (p *Process) event(fn string, h driver.Event) (*event, driver.Result) {
	if r := p.readyTo(fn); r != driver.Success {
		return nil, r
	}
	e := p.events[h]
	if e == nil {
		p.badHandle(fn, "event", uint64(h), eventBase, eventStep, p.gpu.events)
		return nil, driver.ErrorInvalidHandle
	}
	if e.ctx.destroyed {
		return nil, driver.ErrorContextIsDestroyed
	}
	return e, driver.Success
}

func (p *Process) eventCreate(flags uint32) (driver.Event, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.here("EventCreate")
	if r != driver.Success {
		return 0, r
	}
	const known = driver.EventBlockingSync | driver.EventDisableTiming | driver.EventInterprocess
	if flags&^known != 0 || flags&driver.EventInterprocess != 0 && flags&driver.EventDisableTiming == 0 {
		return 0, driver.ErrorInvalidValue
	}
	return p.newEvent(c, flags, &record{}), driver.Success
}

func (p *Process) newEvent(c *context, flags uint32, rec *record) driver.Event {
	p.gpu.events++
	e := &event{
		ctx:    c,
		handle: driver.Event(p.gpu.handle(eventBase, eventStep, p.gpu.events)),
		flags:  flags,
		record: rec,
		made:   callsite.Caller(),
	}
	p.events[e.handle] = e
	return e.handle
}

// eventDestroy may run in a cleanup: see the package's comment.
func (p *Process) eventDestroy(h driver.Event) driver.Result {
	defer p.enter("EventDestroy", 0, h).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return r
	}
	e := p.events[h]
	if e == nil {
		p.badHandle("EventDestroy", "event", uint64(h), eventBase, eventStep, p.gpu.events)
		return driver.ErrorInvalidHandle
	}
	delete(p.events, h)
	e.stir()
	e.unexport()
	if e.ctx.destroyed {
		return driver.ErrorContextIsDestroyed
	}
	return e.ctx.fault
}

// unexport makes e's IPC handle mean nothing; what was opened with it stays.
func (e *event) unexport() {
	if g := e.ctx.proc.gpu; g.exports[e.ipc] == any(e) {
		delete(g.exports, e.ipc)
	}
}

func (p *Process) eventRecord(h driver.Event, s driver.Stream) driver.Result {
	return p.eventRecordWithFlags(h, s, 0)
}

func (p *Process) eventRecordWithFlags(h driver.Event, sh driver.Stream, flags uint32) driver.Result {
	defer p.enter("EventRecord", sh, h).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	e, r := p.event("EventRecord", h)
	if r != driver.Success {
		return r
	}
	s, r := p.on("EventRecord", sh)
	switch {
	case r != driver.Success:
		return r
	case flags&^driver.EventRecordExternal != 0:
		return driver.ErrorInvalidValue
	case s.ctx != e.ctx:
		p.misuse("EventRecord", "event %#x of device %d on a stream of device %d", h, e.ctx.ordinal, s.ctx.ordinal)
		return driver.ErrorInvalidHandle
	}
	if r := s.implicit(); r != driver.Success {
		return r
	}
	switch {
	case s.capture != nil && flags != 0:
		return s.capture.add(s, &node{record: e})
	case s.capture != nil && e.flags&driver.EventInterprocess != 0:
		return driver.ErrorStreamCaptureUnsupported
	case s.capture != nil:
		return s.capture.mark(s, e)
	case flags != 0:
		return driver.ErrorIllegalState
	}
	if e.hangs() {
		s.submit(&op{}, e.op)
	}
	if e.timing() {
		s.submit(&op{dur: int64(tick)})
		e.recorded(s.tail, s.sequence.Last())
	} else {
		o := s.point()
		s.follow()
		e.recorded(o, s.sequence.Last())
	}
	return driver.Success
}

// timing reports whether e was made to tell the time.
func (e *event) timing() bool { return e.flags&driver.EventDisableTiming == 0 }

// hangs reports whether e hangs on the work of a dead process for good: not even
// recording it anew frees an event that processes share.
func (e *event) hangs() bool {
	return e.op.pending() && e.op.stuck && e.flags&driver.EventInterprocess != 0
}

// recorded makes e stand for the end of o, outside any capture, of nil if it is
// done already; and for the point at in the order.
func (e *event) recorded(o *op, at order.Point) {
	e.set, e.op, e.at, e.timed, e.capture, e.nodes = true, o, at, e.timing(), nil, nil
	e.stir()
}

// stir makes sleepers look at e again.
func (e *event) stir() {
	if e.slept {
		e.slept = false
		e.ctx.proc.gpu.broadcast()
	}
}

func (p *Process) streamWaitEvent(sh driver.Stream, h driver.Event, flags uint32) driver.Result {
	defer p.enter("StreamWaitEvent", sh, h).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	e, r := p.event("StreamWaitEvent", h)
	if r != driver.Success {
		return r
	}
	s, r := p.on("StreamWaitEvent", sh)
	switch {
	case r != driver.Success:
		return r
	case e.ctx.fault != driver.Success:
		return e.ctx.fault
	case flags&^driver.EventWaitExternal != 0:
		return driver.ErrorInvalidValue
	}
	if r := s.implicit(); r != driver.Success {
		return r
	}
	switch {
	case s.capture != nil && flags != 0:
		return s.capture.add(s, &node{wait: e})
	case flags != 0:
		return driver.ErrorIllegalState
	case !e.set:
		return driver.Success
	case e.capture != nil:
		return s.join(e)
	case s.capture != nil:
		s.capture.kill()
		if e.flags&driver.EventInterprocess != 0 {
			return driver.ErrorStreamCaptureUnsupported
		}
		return driver.ErrorStreamCaptureIsolation
	}
	s.follow()
	s.sequence.Join(e.at)
	if !s.legacy && !s.blocking() && (!e.op.pending() || e.op == s.tail) {
		return driver.Success // else it is work, which others may have to wait for
	}
	var buf [4]*op
	if len(s.before(buf[:0])) == 0 {
		s.tail = e.op
	} else {
		s.submit(&op{}, e.op)
	}
	return driver.Success
}

// look finds an event for a call that asks or waits for it.
func (p *Process) look(fn string, h driver.Event) (*event, driver.Result) {
	e, r := p.event(fn, h)
	if r != driver.Success {
		return nil, r
	}
	p.gpu.advance()
	switch {
	case e.ctx.fault != driver.Success:
		return nil, e.ctx.fault
	case p.forbidden():
		return nil, driver.ErrorStreamCaptureUnsupported
	case e.capture != nil && e.capture.ended:
		return nil, driver.ErrorInvalidValue
	case e.capture != nil:
		e.capture.kill()
		return nil, driver.ErrorCapturedEvent
	}
	return e, driver.Success
}

func (p *Process) eventQuery(h driver.Event) driver.Result {
	defer p.enter("EventQuery", 0, h).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	e, r := p.look("EventQuery", h)
	switch {
	case r != driver.Success:
		return r
	case e.op.pending():
		return driver.ErrorNotReady
	}
	p.gpu.order.HostWaited(e.at)
	return driver.Success
}

func (p *Process) eventSynchronize(h driver.Event) driver.Result {
	defer p.enter("EventSynchronize", 0, h).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	e, r := p.look("EventSynchronize", h)
	if r != driver.Success {
		return r
	}
	at := e.at
	p.gpu.await(e.ctx, e.op)
	e.ctx.hostWaited(at)
	return e.ctx.answer()
}

func (p *Process) eventElapsedTime(start, end driver.Event) (ms float32, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	a, r := p.event("EventElapsedTime", start)
	if r != driver.Success {
		return 0, r
	}
	b, r := p.event("EventElapsedTime", end)
	if r != driver.Success {
		return 0, r
	}
	p.gpu.advance()
	if a.ctx.fault != driver.Success || b.ctx.fault != driver.Success {
		return 0, max(a.ctx.fault, b.ctx.fault)
	}
	for _, e := range []*event{a, b} {
		switch {
		case e.capture != nil && e.capture.ended:
			return 0, driver.ErrorInvalidValue
		case e.capture != nil:
			return 0, driver.ErrorCapturedEvent
		case !e.timed: // never recorded, or made without timing
			return 0, driver.ErrorInvalidHandle
		}
	}
	switch {
	case a.ctx != b.ctx:
		return 0, driver.ErrorInvalidHandle
	case a.op.pending() || b.op.pending():
		return 0, driver.ErrorNotReady
	}
	p.gpu.order.HostWaited(a.at)
	p.gpu.order.HostWaited(b.at)
	return float32(float64(between(a.op, b.op)) / 1e6), driver.Success
}

// between returns the nanoseconds from one timed record to another, in ticks.
// What the records themselves take does not count unless nothing else does.
func between(a, b *op) int64 {
	switch {
	case a == b:
		return 0
	case b.finish < a.finish || b.finish == a.finish && b.seq < a.seq:
		return -between(b, a)
	}
	const t = int64(tick)
	return max(t, (b.finish-b.dur-a.finish+t/2)/t*t)
}
