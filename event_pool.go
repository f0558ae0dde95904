package cuda

import (
	"runtime"
	"slices"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// eventPool keeps the native events of closed Events for those to come. The driver
// makes and destroys one at a time, which takes as long as several records. And as a
// native event is not destroyed while a call could be using it, who only asks for one
// need not hold it, see [handle.borrow].
type eventPool struct {
	mu   sync.Mutex
	idle [pooledFlags + 1][]*pooledEvent // by their flags
}

// pooledEvent stands for a native event that has one handle after the other. Whoever has
// borrowed any of them can reach it; when nobody can, it is safe to destroy the event.
type pooledEvent struct {
	native driver.Event
	_      *byte // the cleanups of small objects without pointers may never run
}

const (
	// pooledFlags are the flags that pooled events can have.
	pooledFlags = driver.EventBlockingSync | driver.EventDisableTiming
	// maxIdle is how many of a kind are kept.
	maxIdle = 4096
)

// take returns an event that was used before: recorded at some time, and perhaps not
// done. nil if there is none.
func (p *eventPool) take(flags uint32) (e *pooledEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle[flags]); n > 0 {
		e = p.idle[flags][n-1]
		p.idle[flags] = slices.Delete(p.idle[flags], n-1, n) // which forgets it
	}
	return e
}

// put keeps the event of h, which is closed.
func (p *eventPool) put(h *handle) {
	d := h.dev
	kept := d.driver.api.Kept
	kept.Add(h.native)
	if h.covers.void.Load() || h.captured.Load() != 0 || !p.keep(h) {
		// Others know it, or a capture does, or there are enough.
		captured := h.captured.Load() != 0
		runtime.AddCleanup(h.event, func(native uint64) {
			destroy := func() driver.Result {
				d.destroyEvent(driver.Event(native))
				return driver.Success
			}
			if captured { // and perhaps the capture is going on
				d.driver.captures.alone(destroy)
			} else {
				destroy()
			}
			kept.Remove(native)
		}, h.native)
	}
}

func (p *eventPool) keep(h *handle) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[h.flags]) == maxIdle {
		return false
	}
	p.idle[h.flags] = append(p.idle[h.flags], h.event)
	return true
}
