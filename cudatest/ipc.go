package cudatest

import (
	"encoding/binary"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// An IPC handle holds a mark, the machine's number and the export's number; the
// rest of its 64 bytes is zero.
const (
	eventMark  = "simulated event\x00"
	memoryMark = "simulated memory"
)

func (g *GPU) seal(mark string, id uint64) (h [64]byte) {
	copy(h[:], mark)
	binary.LittleEndian.PutUint64(h[16:], g.serial)
	binary.LittleEndian.PutUint64(h[24:], id)
	return h
}

// open returns what a handle stands for, nil if that is nothing any more.
func (g *GPU) open(mark string, h [64]byte) any {
	id := binary.LittleEndian.Uint64(h[24:])
	if h != g.seal(mark, id) {
		return nil
	}
	return g.exports[id]
}

func (p *Process) ipcGetEventHandle(h driver.Event) (ipc driver.IPCEventHandle, r driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, r := p.here("IPCGetEventHandle"); r != driver.Success {
		return ipc, r
	}
	e, r := p.event("IPCGetEventHandle", h)
	if r != driver.Success {
		return ipc, r
	}
	if e.flags&driver.EventInterprocess == 0 || e.imported {
		return ipc, driver.ErrorInvalidHandle
	}
	if e.ipc == 0 {
		g.ipc++
		e.ipc = g.ipc
		g.exports[e.ipc] = e
	}
	return g.seal(eventMark, e.ipc), driver.Success
}

func (p *Process) ipcOpenEventHandle(ipc driver.IPCEventHandle) (driver.Event, driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	c, r := p.here("IPCOpenEventHandle")
	if r != driver.Success {
		return 0, r
	}
	e, _ := g.open(eventMark, ipc).(*event)
	switch {
	case e == nil:
		return 0, driver.ErrorMapFailed
	case e.ctx.proc == p:
		return 0, driver.ErrorInvalidContext
	case e.ctx.proc.conf.OtherUser != p.conf.OtherUser:
		return 0, driver.ErrorMapFailed
	case e.ctx.dev != c.dev:
		p.misuse("IPCOpenEventHandle", "an event of another device than device %d, whose context is current", c.ordinal)
		return 0, driver.ErrorMapFailed
	}
	h := p.newEvent(c, e.flags, e.record)
	p.events[h].imported = true
	return h, driver.Success
}

func (p *Process) ipcGetMemHandle(ptr driver.DevicePtr) (ipc driver.IPCMemHandle, r driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, r := p.here("IPCGetMemHandle"); r != driver.Success {
		return ipc, r
	}
	b := p.contains(uint64(ptr))
	if b == nil || b.host || b.opened > 0 || b.chunk != nil {
		return ipc, driver.ErrorInvalidValue
	}
	if b.mem.ipc == 0 {
		g.ipc++
		b.mem.ipc = g.ipc
		g.exports[b.mem.ipc] = b
	}
	return g.seal(memoryMark, b.mem.ipc), driver.Success
}

func (p *Process) ipcOpenMemHandle(ipc driver.IPCMemHandle, flags uint32) (driver.DevicePtr, driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	c, r := p.here("IPCOpenMemHandle")
	if r != driver.Success {
		return 0, r
	}
	from, _ := g.open(memoryMark, ipc).(*block)
	switch {
	case from == nil, flags&^driver.IPCMemLazyEnablePeerAccess != 0:
		return 0, driver.ErrorInvalidValue
	case from.ctx.proc == p:
		return 0, driver.ErrorInvalidContext
	case p.number(from.mem.dev) < 0:
		return 0, driver.ErrorInvalidValue
	case c.dev != from.mem.dev && !g.peers(c.dev, from.mem.dev):
		return 0, driver.ErrorPeerAccessUnsupported
	}
	for _, b := range p.blocks { // opening again gives the same address
		if b.mem == from.mem && b.ctx == c {
			b.opened++
			return driver.DevicePtr(b.base), driver.Success
		}
	}
	b := &block{ctx: c, size: from.size, data: from.data, opened: 1, mem: from.mem, history: from.history, made: callsite.Caller()}
	b.mem.refs++
	p.place(b)
	return driver.DevicePtr(b.base), driver.Success
}

// ipcCloseMemHandle waits until the device is idle if nothing of the process has the
// memory open any more, but not in a cleanup: see the package's comment.
func (p *Process) ipcCloseMemHandle(ptr driver.DevicePtr) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.here("IPCCloseMemHandle"); r != driver.Success {
		return r
	}
	b := p.begins(uint64(ptr))
	if b == nil || b.opened == 0 || b.data == nil {
		p.misuse("IPCCloseMemHandle", "%#x was not opened", ptr)
		return driver.ErrorInvalidValue
	}
	if b.opened > 1 {
		b.opened--
		return driver.Success
	}
	b.ctx.drain() // lets go of the lock
	switch {
	case b.data == nil:
		return driver.ErrorInvalidValue // somebody else closed it meanwhile
	case b.opened > 1:
		b.opened-- // or opened it again
	default:
		p.remove(b) // still counted once, so that it is not taken for an allocation
	}
	return b.ctx.answer()
}
