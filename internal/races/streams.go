package races

import (
	"sync"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// context is a context, or a device's primary one.
type context struct {
	ordinal int
	legacy  *stream
	streams map[*stream]bool
	left    order.Point // after the work of destroyed streams that synchronise with the default stream
	gone    order.Point // after the work of all destroyed streams
}

// stream is a stream of a context, or its legacy default stream.
type stream struct {
	ctx      *context
	handle   driver.Stream
	legacy   bool
	blocking bool // it and the default stream wait for each other
	made     callsite.Site
	turn     sync.Mutex // held by calls that enqueue
	sequence *order.Sequence
	capture  *capture
	frontier []*node // what the next node of the capture comes after
}

// context returns what is known of a context. The caller holds mu.
func (d *detector) context(c driver.Context) *context {
	x := d.contexts[c]
	if x == nil {
		x = &context{streams: map[*stream]bool{}}
		x.legacy = &stream{ctx: x, legacy: true, sequence: d.order.NewSequence()}
		d.contexts[c] = x
	}
	return x
}

// stream returns the stream of a handle. Those that were not made by the table are known from
// the first call that uses them.
func (d *detector) stream(h driver.Stream) *stream {
	var ctx driver.Context
	var flags uint32
	switch h {
	case 0, driver.StreamLegacy, driver.StreamPerThread:
		ctx, _ = d.api.CtxGetCurrent()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch h {
	case 0, driver.StreamLegacy:
		return d.context(ctx).legacy
	}
	if s := d.streams[h]; s != nil {
		return s
	}
	if h != driver.StreamPerThread {
		ctx, _ = d.api.StreamGetCtx(h)
		flags, _ = d.api.StreamGetFlags(h)
	}
	return d.addStream(h, ctx, flags, callsite.Site{})
}

// addStream adds a stream. The caller holds mu.
func (d *detector) addStream(h driver.Stream, ctx driver.Context, flags uint32, made callsite.Site) *stream {
	s := &stream{ctx: d.context(ctx), handle: h, blocking: flags&driver.StreamNonBlocking == 0, made: made, sequence: d.order.NewSequence()}
	s.ctx.streams[s] = true
	d.streams[h] = s
	return s
}

// follow is called before something is put on s: it comes after the default stream's work, or,
// in the default stream, after that of all streams that synchronise with it.
func (s *stream) follow() {
	switch {
	case s.legacy:
		s.sequence.Join(s.synchronising()...)
		s.ctx.left = order.Point{}
	case s.blocking:
		s.sequence.Join(s.ctx.legacy.sequence.Last())
	}
}

// synchronising returns points after the work of all streams that synchronise with s, the
// default stream.
func (s *stream) synchronising() []order.Point {
	points := []order.Point{s.ctx.left}
	for b := range s.ctx.streams {
		if b.blocking {
			points = append(points, b.sequence.Last())
		}
	}
	return points
}

// end returns the point after all that a query of s is about.
func (s *stream) end() order.Point {
	if !s.legacy {
		return s.sequence.Last()
	}
	return order.Merge(append(s.synchronising(), s.sequence.Last())...)
}

// end returns the point after all work of the context.
func (c *context) end() order.Point {
	points := []order.Point{c.gone, c.legacy.sequence.Last()}
	for s := range c.streams {
		points = append(points, s.sequence.Last())
	}
	return order.Merge(points...)
}

// everything returns the point after all work. The caller holds mu.
func (d *detector) everything() order.Point {
	var points []order.Point
	for _, c := range d.contexts {
		points = append(points, c.end())
	}
	return order.Merge(points...)
}

// answered calls the driver and, if it says that what end returned is done, notes that the
// host knows.
func (d *detector) answered(end func() order.Point, call func() driver.Result) driver.Result {
	d.mu.Lock()
	at := end()
	d.mu.Unlock()
	r := call()
	if r == driver.Success {
		d.mu.Lock()
		defer d.unlock()
		d.hostWaited(at)
	}
	return r
}

func (d *detector) wrapStreams(api *driver.API) {
	api.DevicePrimaryCtxRetain = func(dev driver.Device) (driver.Context, driver.Result) {
		c, r := d.api.DevicePrimaryCtxRetain(dev)
		if r == driver.Success {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.context(c).ordinal = int(dev)
		}
		return c, r
	}
	api.CtxSynchronize = func() driver.Result {
		ctx, _ := d.api.CtxGetCurrent()
		return d.answered(func() order.Point { return d.context(ctx).end() }, d.api.CtxSynchronize)
	}
	api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) {
		ctx, _ := d.api.CtxGetCurrent()
		h, r := d.api.StreamCreateWithPriority(flags, priority)
		if r == driver.Success {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.addStream(h, ctx, flags, callsite.Caller())
		}
		return h, r
	}
	api.StreamDestroy = func(h driver.Stream) driver.Result {
		d.mu.Lock()
		if s := d.streams[h]; s != nil { // before the driver gives the handle out again
			delete(d.streams, h)
			delete(s.ctx.streams, s)
			s.ctx.gone = order.Merge(s.ctx.gone, s.sequence.Last())
			if s.blocking {
				s.ctx.left = order.Merge(s.ctx.left, s.sequence.Last())
			}
			if c := s.capture; c != nil && c.origin == s {
				c.end().release()
			}
			s.capture = nil
			s.sequence.Retire()
		}
		d.mu.Unlock()
		return d.api.StreamDestroy(h)
	}
	api.StreamQuery = func(h driver.Stream) driver.Result {
		s := d.stream(h)
		return d.answered(s.end, func() driver.Result { return d.api.StreamQuery(h) })
	}
	api.StreamSynchronize = func(h driver.Stream) driver.Result {
		s := d.stream(h)
		return d.answered(s.end, func() driver.Result { return d.api.StreamSynchronize(h) })
	}
}
