package native

import (
	"fmt"
	"runtime"
	"weak"

	"github.com/purecuda/cuda/driver"
)

// ownEvent is an event of this process that others have a handle of. It does not keep the
// event reachable.
type ownEvent struct {
	handle [64]byte
	n      weak.Pointer[nativeEvent]
	dev    *Device
	users  int // Events that are not closed
}

// IPCHandle returns the handle by which other processes can open the event, which is made on
// d if there is none.
func (e *Event) IPCHandle(d *Device) (driver.IPCEventHandle, error) {
	m := e.mark.Load()
	if m == nil {
		var err error
		if m, err = e.create(d); err != nil {
			return driver.IPCEventHandle{}, err
		}
	}
	switch {
	case m == closedMark:
		return driver.IPCEventHandle{}, errEventClosed
	case m.share != nil:
		return m.share.handle(), nil
	}
	h, r := m.dev.mustOpen().QuietBound.IPCGetEventHandle(m.event)
	if r != driver.Success {
		return h, r
	}
	x := &m.dev.Driver.sharing
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, n := x.ownEvent(h); n != m.n {
		if x.events == nil {
			x.events = map[[64]byte]*ownEvent{}
		}
		o := &ownEvent{handle: h, n: weak.Make(m.n), dev: m.dev, users: 1}
		x.events[h] = o
		runtime.AddCleanup(m.n, x.collected, o)
		if e.mark.Load() != m { // it was closed before there was anything to withdraw
			x.endUse(o)
			return driver.IPCEventHandle{}, errEventClosed
		}
	}
	return h, nil
}

// IPCHandle returns the handle by which other processes can open m.
func (m *Memory) IPCHandle() (driver.IPCMemHandle, error) {
	if !m.Acquire() {
		return driver.IPCMemHandle{}, closedError(m.String())
	}
	defer m.leave()
	switch {
	case m.share != nil && m.share.ownMemory != nil:
		return *m.share.ownMemory.given.Load(), nil
	case m.share != nil:
		return m.share.handle(), nil
	case m.kind != plainMemory:
		return driver.IPCMemHandle{}, &Refusal{Err: ErrNoInterprocess, Detail: "memory of AllocAsync is the pool's, which gives no handles out; share memory of Alloc"}
	}
	h, r := m.Dev.mustOpen().QuietBound.IPCGetMemHandle(m.Addr)
	if r != driver.Success {
		return h, &Refusal{Code: r, Detail: fmt.Sprintf("device %d may be of a kind whose memory cannot be shared", m.Dev.Index)}
	}
	x := &m.Dev.Driver.sharing
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.memory == nil {
		x.memory = map[[64]byte]*Memory{}
	}
	x.memory[h] = m
	m.given.Store((*[64]byte)(&h))
	return h, nil
}

// ownEvent returns the event of this process that a handle stands for; nil if there is none,
// or everybody has forgotten it. The caller holds mu.
func (x *sharing) ownEvent(handle [64]byte) (*ownEvent, *nativeEvent) {
	if o := x.events[handle]; o != nil {
		return o, o.n.Value()
	}
	return nil, nil
}

// withdraw is called when the Event that was the first to have n is closed.
func (x *sharing) withdraw(n *nativeEvent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.events {
		if o.n == weak.Make(n) {
			x.endUse(o)
			return
		}
	}
}

// collected is called when nobody can reach the event of o any more.
func (x *sharing) collected(o *ownEvent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.events[o.handle] == o {
		delete(x.events, o.handle)
	}
}

func (x *sharing) leaveEvent(o *ownEvent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endUse(o)
}

// endUse is called with mu held. The driver may have given a later event the same handle.
func (x *sharing) endUse(o *ownEvent) {
	if o.users--; o.users == 0 && x.events[o.handle] == o {
		delete(x.events, o.handle)
	}
}

// takeBack is called before m is freed: the driver may give other memory the same handle.
func (x *sharing) takeBack(m *Memory) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := m.given.Load(); h != nil && x.memory[*h] == m {
		delete(x.memory, *h)
	}
}
