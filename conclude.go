package cuda

import (
	"math"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// The driver does some things only in waits of its own: it hands what kernels have
// printed to C's standard output, and takes note of the frees of pool memory that
// are done. The waits of this package ask instead, so Synchronize of streams and
// devices ends with the driver's, for an event that is done. It returns at once.

// conclude does that when the wait p for a stream is over. Streams on which nothing
// happened that matters need it only once.
func (p *pending) conclude() driver.Result {
	s := p.owner
	if s.concluded.Load() >= p.effects {
		return driver.Success
	}
	line := &s.dev.line
	line.Lock()
	defer line.Unlock()
	if s.concluded.Load() >= p.effects {
		return driver.Success
	}
	r := p.event.concludeEvent()
	if r == driver.Success {
		s.concluded.Store(p.effects)
	}
	return r
}

// concludeEvent makes the driver's wait for an event that is done.
func (h *handle) concludeEvent() driver.Result {
	return h.dev.driver.relaxed(func() driver.Result {
		return h.dev.call(func(api *driver.API) driver.Result { return api.EventSynchronize(driver.Event(h.native)) })
	})
}

// freed are the streams of a device on which pool memory was freed, and of which the
// driver may not have noted it.
type freed struct {
	mu      sync.Mutex
	streams map[*handle]struct{}
}

func (f *freed) note(s *handle) {
	s.effects.note()
	if s.freed.Load() {
		return // who takes it will see to this free too: the mark goes first
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.freed.Store(true)
	if f.streams == nil {
		f.streams = map[*handle]struct{}{}
	}
	f.streams[s] = struct{}{}
}

// forget is called when a stream is destroyed.
func (f *freed) forget(s *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}

func (f *freed) take() map[*handle]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	streams := f.streams
	f.streams = nil
	for s := range streams {
		s.freed.Store(false)
	}
	return streams
}

// concludeFrees makes the driver take note of the frees that are done. It waits for
// none.
func (d *Device) concludeFrees() {
	d.line.Lock()
	defer d.line.Unlock()
	for s := range d.freed.take() {
		if !s.acquire() {
			continue
		}
		if !s.concludeFrees() {
			d.freed.note(s)
		}
		s.release()
	}
}

// concludeFrees reports whether all frees on the stream are done and noted.
func (h *handle) concludeFrees() bool {
	d := h.dev
	beginning := &d.driver.captures.beginning
	beginning.RLock()
	defer beginning.RUnlock()
	if h.capturing() {
		return false
	}
	m, r := d.milestones.take(d)
	if r != driver.Success {
		return false
	}
	defer d.milestones.put(m)
	r = h.record(driver.Event(m.native))
	return r == driver.Success && m.queryEventRelaxed() == driver.Success && m.concludeEvent() == driver.Success
}

// conclude is what a wait for all of the device ends with.
func (d *Device) conclude(event *handle) driver.Result {
	d.line.Lock()
	r := event.concludeEvent()
	d.line.Unlock()
	if p := d.pool.Load(); p != nil {
		keep, got := d.driver.api.MemPoolGetAttribute(p.native, driver.MemPoolReleaseThreshold)
		if got == driver.Success && keep < math.MaxUint64 {
			d.concludeFrees()
		}
	}
	return r
}
