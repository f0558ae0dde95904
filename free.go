package cuda

import (
	"errors"
	"time"

	"github.com/purecuda/cuda/driver"
)

// free gives the memory of h back once every stream that uses it is done. The
// host does not wait. The last reference to h is gone, so nobody else is here.
func (l *lifetime) free(h *handle) driver.Result {
	c := &h.dev.driver.captures
	c.beginning.RLock() // no stream that is waited for can begin a capture now
	for l.captured(h.dev.driver) {
		if c.park(h) {
			c.beginning.RUnlock()
			return driver.Success
		}
	}
	if h.kind == kindPoolBuffer {
		defer c.beginning.RUnlock()
		return h.dev.driver.undisturbed(func() driver.Result { return l.freeInOrder(h) })
	}
	events, r := l.lastUses()
	c.beginning.RUnlock()
	if r != driver.Success { // nothing says when it is safe
		return h.lost(r)
	}
	return freeAfter(h, events)
}

// captured reports whether a stream that must be waited for is being captured:
// an event recorded on it now would become part of a graph.
func (l *lifetime) captured(d *Driver) bool {
	if d.captures.active.Load() == 0 {
		return false
	}
	if l.home != nil && l.home.capturing() {
		return true
	}
	for _, m := range l.list() {
		if m.stream.capturing() {
			return true
		}
	}
	return false
}

// freeInOrder makes the home wait for the marked streams that it has not joined
// since, and frees in the home's order (cuMemFreeAsync).
func (l *lifetime) freeInOrder(h *handle) driver.Result {
	r := driver.Success
	for _, m := range l.list() {
		if r == driver.Success && !l.home.hasJoined(m.stream, m.use.Load()) {
			r = l.home.waitFor(m)
		}
	}
	if r == driver.Success {
		r = l.home.onStream(func(api *driver.API, s driver.Stream) driver.Result {
			return api.MemFreeAsync(driver.DevicePtr(h.native), s)
		})
		l.home.dev.freed.note(l.home)
	}
	l.end()
	return r
}

// waitFor makes the stream of h wait for what the stream of m has been given.
func (h *handle) waitFor(m *mark) driver.Result {
	if m.event != 0 {
		return h.wait(m.event)
	}
	return m.stream.waitedBy(h)
}

// lastUses returns events that are done when no stream uses the memory any more,
// and lets go of the streams.
func (l *lifetime) lastUses() ([]*handle, driver.Result) {
	var pending, streams []*handle
	r := driver.Success
	if l.home != nil {
		streams = append(streams, l.home)
	}
	for _, m := range l.list() {
		if m.event != 0 {
			pending = append(pending, &handle{dev: m.stream.dev, kind: kindEvent, native: uint64(m.event)})
			m.event = 0
		} else {
			streams = append(streams, m.stream)
		}
	}
	for _, s := range streams {
		if s.queryStreamRelaxed() == driver.Success {
			continue
		}
		e, failed := s.dev.createEvent(driver.EventDisableTiming)
		if failed == driver.Success {
			pending = append(pending, &handle{dev: s.dev, kind: kindEvent, native: uint64(e)})
			failed = s.record(e)
		}
		if failed != driver.Success {
			r = failed
			break
		}
	}
	l.end()
	if r != driver.Success {
		for _, e := range pending {
			e.dev.destroyEvent(driver.Event(e.native))
		}
		return nil, r
	}
	return pending, r
}

// freeAfter frees the memory of h, which no stream's order can free, when the
// events are done, which it destroys. If they are not yet, it returns and a
// goroutine waits for them. That of AllocAsync is always left to a goroutine,
// because closing it must not wait for the device, as the driver's call does. That
// of Alloc and RegisterHost, and what was imported, is waited for.
func freeAfter(h *handle, events []*handle) driver.Result {
	for len(events) > 0 && events[0].queryEventRelaxed() == driver.Success {
		events[0].dev.destroyEvent(driver.Event(events[0].native))
		events = events[1:]
	}
	switch {
	case h.kind == kindRegistered, h.mem.plain != nil, h.shared != nil: // the caller wants it back
		return freeLater(h, events)
	case len(events) == 0 && h.kind != kindBuffer:
		return h.dev.driver.relaxed(h.freeMemory)
	}
	go func() {
		if r := h.outlastAll(events); r != driver.Success {
			h.cleanupFailed(r)
			return
		}
		h.dev.chores.add(func() {
			if r := h.dev.driver.relaxed(h.freeMemory); r != driver.Success {
				h.cleanupFailed(r)
			}
		})
	}()
	return driver.Success
}

// outlast waits for an event of the library's own. It asks by itself, because it may
// run in a cleanup, which is in no testing/synctest bubble, for a device that is
// watched in one.
func (h *handle) outlast() (err error) {
	h.waits.Add(1)
	p := pending{event: h, owner: h}
	defer p.end()
	over := false
	for nap := shortestNap; !over; nap = min(nap+nap/4, longestNap) {
		h.dev.line.Lock()
		over, err = p.ask("")
		h.dev.line.Unlock()
		if !over {
			time.Sleep(nap)
		}
	}
	return err
}

// freeLater waits for the events, and frees the memory of h. That blocks a thread
// until the device is idle.
func freeLater(h *handle, events []*handle) driver.Result {
	if r := h.outlastAll(events); r != driver.Success {
		return r
	}
	return h.dev.driver.relaxed(h.freeMemory)
}

// outlastAll waits for the events, and destroys them. If the wait fails, nothing says when
// the memory of h can be freed.
func (h *handle) outlastAll(events []*handle) driver.Result {
	for _, e := range events {
		var failed *Error
		if errors.As(e.outlast(), &failed) {
			return h.lost(failed.Code)
		}
		e.dev.destroyEvent(driver.Event(e.native))
	}
	return driver.Success
}

// lost is called instead of freeing the memory of h. If the device has failed, this
// process's memory there is lost, and its work over: whose memory it is can have it back.
func (h *handle) lost(r driver.Result) driver.Result {
	if h.shared != nil && r.Sticky() {
		_ = h.dev.driver.relaxed(h.freeMemory) // fails likewise
	}
	return r
}

// end lets go of the streams.
func (l *lifetime) end() {
	for _, m := range l.list() {
		m.release()
	}
	l.marks.Store(nil)
	if l.home != nil {
		l.home.letOff()
	}
}
