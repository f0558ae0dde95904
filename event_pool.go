package cuda

import (
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// eventPool keeps the native events of closed Events for those to come. The driver
// makes and destroys one at a time, which takes as long as several records; and because
// a native event is not destroyed, a call need not hold it: one that another goroutine's
// Close overtakes finds an event, if no longer its own, and looks afterwards whether it
// was closed.
type eventPool struct {
	mu   sync.Mutex
	idle [pooledFlags + 1][]driver.Event // by their flags
}

// pooledFlags are the flags that pooled events can have.
const pooledFlags = driver.EventBlockingSync | driver.EventDisableTiming

// take returns an event, and whether it is one that was used before: recorded at some
// time, and perhaps not done.
func (p *eventPool) take(d *Device, flags uint32) (e driver.Event, used bool, r driver.Result) {
	p.mu.Lock()
	if idle := p.idle[flags]; len(idle) > 0 {
		e, p.idle[flags] = idle[len(idle)-1], idle[:len(idle)-1]
	}
	p.mu.Unlock()
	if e != 0 {
		d.driver.api.Kept.Remove(uint64(e))
		return e, true, driver.Success
	}
	e, r = d.createEvent(flags)
	return e, false, r
}

// put keeps the event of h, which is closed. One that others know, by [Event.Handle], is
// for nobody else: it is destroyed when no call can be using it.
func (p *eventPool) put(h *handle) {
	h.dev.driver.api.Kept.Add(h.native)
	if h.covers.void.Load() {
		d := h.dev
		runtime.AddCleanup(h, func(native uint64) {
			d.driver.api.Kept.Remove(native)
			d.destroyEvent(driver.Event(native))
		}, h.native)
		return
	}
	p.mu.Lock()
	p.idle[h.flags] = append(p.idle[h.flags], driver.Event(h.native))
	p.mu.Unlock()
}
