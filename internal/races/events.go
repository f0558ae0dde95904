package races

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// event is an event. The zero value was never recorded.
type event struct {
	shared   bool        // others may record it too: it counts as coming after everything
	at       order.Point // the last record outside captures
	capture  *capture    // in which it was recorded last
	frontier []*node
}

// end returns the point that is done when the event is. The caller holds mu.
func (e *event) end(d *detector) order.Point {
	if e.shared {
		return d.everything()
	}
	return e.at
}

// event returns the event of a handle. The caller holds mu.
func (d *detector) event(h driver.Event) *event {
	e := d.events[h]
	if e == nil { // somebody else made it
		e = &event{shared: true}
		d.events[h] = e
	}
	return e
}

func (d *detector) addEvent(h driver.Event, shared bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events[h] = &event{shared: shared}
}

// doneAt returns the point at which the event that h is now is done.
func (d *detector) doneAt(h driver.Event) func() order.Point {
	return func() order.Point { return d.event(h).end(d) }
}

func (d *detector) wrapEvents(api *driver.API) {
	api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
		h, r := d.api.EventCreate(flags)
		if r == driver.Success {
			d.addEvent(h, flags&driver.EventInterprocess != 0)
		}
		return h, r
	}
	api.IPCOpenEventHandle = func(ipc driver.IPCEventHandle) (driver.Event, driver.Result) {
		h, r := d.api.IPCOpenEventHandle(ipc)
		if r == driver.Success {
			d.addEvent(h, true)
		}
		return h, r
	}
	api.EventDestroy = func(h driver.Event) driver.Result {
		d.mu.Lock()
		delete(d.events, h)
		d.mu.Unlock()
		return d.api.EventDestroy(h)
	}
	api.EventRecord = func(h driver.Event, s driver.Stream) driver.Result {
		return d.record(h, s, false, func() driver.Result { return d.api.EventRecord(h, s) })
	}
	api.EventRecordWithFlags = func(h driver.Event, s driver.Stream, flags uint32) driver.Result {
		return d.record(h, s, flags&driver.EventRecordExternal != 0, func() driver.Result { return d.api.EventRecordWithFlags(h, s, flags) })
	}
	api.CtxRecordEvent = func(c driver.Context, h driver.Event) driver.Result {
		d.mu.Lock()
		at := d.context(c).end()
		d.mu.Unlock()
		r := d.api.CtxRecordEvent(c, h)
		if r == driver.Success {
			d.mu.Lock()
			defer d.mu.Unlock()
			e := d.event(h)
			e.at, e.capture = at, nil
		}
		return r
	}
	api.StreamWaitEvent = d.waitEvent
	api.EventQuery = func(h driver.Event) driver.Result {
		return d.answered(d.doneAt(h), func() driver.Result { return d.api.EventQuery(h) })
	}
	api.EventSynchronize = func(h driver.Event) driver.Result {
		return d.answered(d.doneAt(h), func() driver.Result { return d.api.EventSynchronize(h) })
	}
	api.EventElapsedTime = func(start, end driver.Event) (ms float32, r driver.Result) {
		both := func() order.Point { return order.Merge(d.doneAt(start)(), d.doneAt(end)()) }
		r = d.answered(both, func() driver.Result {
			ms, r = d.api.EventElapsedTime(start, end)
			return r
		})
		return ms, r
	}
}

// record has the driver record an event; external: as a node, if it is in a capture.
func (d *detector) record(h driver.Event, on driver.Stream, external bool, call func() driver.Result) driver.Result {
	s := d.stream(on)
	s.turn.Lock()
	defer s.turn.Unlock()
	r := call()
	if r != driver.Success {
		return r
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e := d.event(h); {
	case s.capture != nil && external:
		s.capture.add(s, &operation{run: func(s *order.Sequence) order.Point {
			e.at, e.capture = s.Next(), nil
			return e.at
		}})
	case s.capture != nil:
		e.capture, e.frontier = s.capture, s.frontier
	default:
		s.follow()
		e.at, e.capture = s.sequence.Last(), nil
	}
	return r
}

func (d *detector) waitEvent(on driver.Stream, h driver.Event, flags uint32) driver.Result {
	s := d.stream(on)
	s.turn.Lock()
	defer s.turn.Unlock()
	d.mu.Lock()
	e := d.event(h)
	was, at := *e, e.end(d) // a later record is not waited for
	d.mu.Unlock()
	r := d.api.StreamWaitEvent(on, h, flags)
	if r != driver.Success {
		return r
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case s.capture != nil && flags&driver.EventWaitExternal != 0:
		s.capture.add(s, &operation{run: func(s *order.Sequence) order.Point {
			s.Join(e.end(d))
			return s.Next()
		}})
	case was.capture != nil:
		was.capture.join(s, was.frontier)
	case s.capture == nil:
		s.follow()
		s.sequence.Join(at)
	}
	return r
}
