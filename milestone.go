package cuda

import (
	"sync"

	"github.com/purecuda/cuda/driver"
)

// milestones are a device's events by which the library itself learns when a stream
// or the device has come to a point: recorded for one wait, then kept for the next.
type milestones struct {
	making sync.Mutex // where those stand in line who make one: see Device.line
	mu     sync.Mutex
	idle   []*handle
}

// maxMilestones is how many a device keeps; more are destroyed after use.
const maxMilestones = 1024

func (m *milestones) take(d *Device) (*handle, driver.Result) {
	if h := m.kept(); h != nil {
		return h, driver.Success
	}
	m.making.Lock()
	defer m.making.Unlock()
	if h := m.kept(); h != nil { // was given back meanwhile
		return h, driver.Success
	}
	e, r := d.createEvent(driver.EventDisableTiming)
	if r != driver.Success {
		return nil, r
	}
	d.driver.api.Kept.Add(uint64(e))
	return newHandle(d, kindMilestone, uint64(e)), driver.Success
}

// kept takes one that was given back, nil if there is none.
func (m *milestones) kept() *handle {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.idle)
	if n == 0 {
		return nil
	}
	h := m.idle[n-1]
	m.idle = m.idle[:n-1]
	return h
}

// put gives one back that nobody waits for any more.
func (m *milestones) put(h *handle) {
	if h.round != nil {
		return
	}
	h.covers.word.Store(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.idle) < maxMilestones {
		m.idle = append(m.idle, h)
		return
	}
	h.dev.chores.add(h.closeUnneeded)
}

// begin begins a wait for all that s has been given.
func (s *Stream) begin(op string) (pending, error) {
	if err := s.acquire(op); err != nil {
		return pending{}, err
	}
	defer s.h.release()
	if s.isDefault { // its context must be made current
		s.dev.line.Lock()
		defer s.dev.line.Unlock()
	}
	d, effects := s.dev.driver, s.h.effects.look()
	beginning := &d.captures.beginning
	beginning.RLock() // so that it does not become part of a capture now
	defer beginning.RUnlock()
	if err := s.notCapturing(op, true); err != nil {
		return pending{}, err
	}
	if takeSeat() {
		r := s.h.queryStreamRelaxed()
		leaveSeat()
		idle := r == driver.Success && s.h.concluded.Load() >= effects
		if idle || r != driver.Success && r != driver.ErrorNotReady {
			return pending{}, check(op, r)
		}
	}
	m, r := s.dev.milestones.take(s.dev)
	if r != driver.Success {
		return pending{}, failure(op, r)
	}
	rec := m.covers.begin(s.h)
	r = s.h.record(driver.Event(m.native))
	m.covers.end(rec, s.h, s.h.recorded(), r == driver.Success)
	if r != driver.Success {
		s.dev.milestones.put(m)
		return pending{}, failure(op, r)
	}
	s.h.waits.Add(1)
	return pending{event: m, owner: s.h, keep: s, effects: effects}, nil
}
