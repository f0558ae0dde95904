package native

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// nativeEvent is a native event. It is destroyed when nobody can reach it, so that no call
// has to hold it.
type nativeEvent struct {
	event driver.Event
	flags uint32
	inUse *atomic.Bool // it is that of an Event which is not closed
}

// eventPool keeps native events that no Event has, for those to come: the driver makes and
// destroys one at a time, which takes as long as several records.
type eventPool struct {
	making sync.Mutex // a crowd waits for each other here, and not in the driver with a thread each
	mu     sync.Mutex
	idle   [pooledFlags + 1][]*nativeEvent // by their flags
	// limbo has marks that were given back while calls were under way on their streams, which
	// may be about to record them.
	limbo []*Mark
	// all are the events that exist. Those that are not in use are no leak.
	all map[driver.Event]*atomic.Bool
}

const (
	pooledFlags = driver.EventBlockingSync | driver.EventDisableTiming
	maxIdle     = 4096 // of each kind
	maxLimbo    = 256
)

// newEvent is for an event that the driver has just made.
func (d *Device) newEvent(event driver.Event, flags uint32) *nativeEvent {
	n := &nativeEvent{event, flags, new(atomic.Bool)}
	p := &d.events
	p.mu.Lock()
	if p.all == nil {
		p.all = map[driver.Event]*atomic.Bool{}
	}
	p.all[event] = n.inUse
	p.mu.Unlock()
	runtime.AddCleanup(n, d.destroyEvent, eventRemains{event, n.inUse})
	return n
}

// eventRemains is what is left of a native event that nobody can reach.
type eventRemains struct {
	event driver.Event
	inUse *atomic.Bool
}

func (d *Device) destroyEvent(r eventRemains) {
	if r.inUse.Swap(false) { // an Event that was not closed
		d.Driver.Live.Events.Add(-1)
		d.Driver.Live.Forgotten.Add(1)
	}
	d.Driver.cleanupFailed("event", d.mustOpen().Quiet.EventDestroy(r.event))
	p := &d.events
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[r.event] == r.inUse { // else the handle has been given out again
		delete(p.all, r.event)
	}
}

// retains reports whether a native event exists on purpose.
func (p *eventPool) retains(event driver.Event) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	inUse := p.all[event]
	return inUse != nil && !inUse.Load()
}

// make makes a native event.
func (p *eventPool) make(d *Device, flags uint32) (*nativeEvent, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	e, r := t.QuietBound.EventCreate(flags)
	if r != driver.Success {
		return nil, r
	}
	return d.newEvent(e, flags), nil
}

// take returns an event: one that was recorded by others at some time, or a new one. In a
// capture it is always new. own is the stream that the caller is in, or nil.
func (p *eventPool) take(d *Device, own *Stream, flags uint32, k *Capture) (*nativeEvent, error) {
	if k != nil {
		return p.make(d, flags)
	}
	p.mu.Lock()
	if len(p.idle[flags]) == 0 {
		p.sweep(own)
	}
	e := p.pop(flags)
	p.mu.Unlock()
	if e != nil {
		return e, nil
	}
	p.making.Lock()
	defer p.making.Unlock()
	p.mu.Lock()
	e = p.pop(flags) // it was given back meanwhile
	p.mu.Unlock()
	if e != nil {
		return e, nil
	}
	return p.make(d, flags)
}

// pop takes an idle event, nil if there is none. The caller holds mu.
func (p *eventPool) pop(flags uint32) *nativeEvent {
	list := &p.idle[flags]
	n := len(*list)
	if n == 0 {
		return nil
	}
	e := (*list)[n-1]
	(*list)[n-1] = nil
	*list = (*list)[:n-1]
	return e
}

// put keeps n, which no call uses, unless there are enough.
func (p *eventPool) put(n *nativeEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep(n)
}

func (p *eventPool) keep(n *nativeEvent) {
	if list := &p.idle[n.flags]; len(*list) < maxIdle {
		*list = append(*list, n)
	}
}

// give keeps the native event of m, but not before the calls are over that are under way
// on m's stream: they may be about to record it. own is the stream that the caller is in.
func (p *eventPool) give(m *Mark, own *Stream) {
	quiet := m.quiet(own)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case quiet:
		p.keep(m.n)
	case len(p.limbo) < maxLimbo: // beyond that the garbage collector takes it
		p.limbo = append(p.limbo, m)
	}
}

// quiet reports whether no call but the caller's is under way on the stream of m.
func (m *Mark) quiet(own *Stream) bool {
	switch m.on {
	case nil: // it was recorded by the library alone
		return true
	case own:
		return m.on.gate.Quiet(1)
	}
	return m.on.gate.Quiet(0)
}

// sweep keeps what is in limbo and whose stream is quiet by now. The caller is in own.
func (p *eventPool) sweep(own *Stream) {
	p.limbo = slices.DeleteFunc(p.limbo, func(m *Mark) bool {
		quiet := m.quiet(own)
		if quiet {
			p.keep(m.n)
		}
		return quiet
	})
}
