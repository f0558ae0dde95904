package cuda

import (
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// eventPool keeps the native events of closed Events for those to come. The driver
// makes and destroys one at a time, which takes as long as several records. And as a
// native event is not destroyed while a call could be using it, who only asks for one
// need not hold it, see [handle.borrow].
type eventPool struct {
	mu   sync.Mutex
	idle [pooledFlags + 1][]driver.Event // by their flags
}

const (
	// pooledFlags are the flags that pooled events can have.
	pooledFlags = driver.EventBlockingSync | driver.EventDisableTiming
	// maxIdle is how many of a kind are kept.
	maxIdle = 4096
)

// take returns an event that was used before: recorded at some time, and perhaps not
// done. 0 if there is none.
func (p *eventPool) take(flags uint32) (e driver.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := p.idle[flags]; len(idle) > 0 {
		e, p.idle[flags] = idle[len(idle)-1], idle[:len(idle)-1]
	}
	return e
}

// put keeps the event of h, which is closed.
func (p *eventPool) put(h *handle) {
	api := h.dev.driver.api
	api.Kept.Add(h.native)
	if h.covers.void.Load() || h.captured.Load() != 0 || !p.keep(h) {
		// Others know it, or a capture does, or there are enough. It goes when no
		// call can have it any more.
		d := h.dev
		runtime.AddCleanup(h, func(native uint64) {
			d.destroyEvent(driver.Event(native))
			api.Kept.Remove(native)
		}, h.native)
	}
}

func (p *eventPool) keep(h *handle) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[h.flags]) == maxIdle {
		return false
	}
	p.idle[h.flags] = append(p.idle[h.flags], driver.Event(h.native))
	return true
}
