package cudatest

import (
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// launchHostFunc enqueues a function. It runs on a goroutine of its own, because
// it may take long and may wait for others, and what is behind it waits until it
// has returned. The functions of a device run one after the other, as on a real
// driver's one thread.
func (p *Process) launchHostFunc(h driver.Stream, f driver.HostFunc) driver.Result {
	defer p.enter("LaunchHostFunc", h, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on("LaunchHostFunc", h)
	if r != driver.Success {
		return r
	}
	// Visible, because a program may wait for it without calling the driver.
	return s.enqueue(&op{what: "host", kind: hostOp, host: f, visible: true})
}

// callDue calls the functions whose turn has come, but those of devices on which
// one runs. Outside the GPU's synctest bubble it leaves them to the next call
// from inside.
func (g *GPU) callDue() {
	g.flush()
	if len(g.due) == 0 {
		return
	}
	if _, inside := g.clock(); !inside {
		return
	}
	later := g.due[:0]
	for _, o := range g.due {
		switch {
		case o.ctx.proc.dying: // it never runs
		case o.ctx.calling:
			later = append(later, o)
		default:
			o.ctx.calling = true
			go g.call(o)
		}
	}
	clear(g.due[len(later):])
	g.due = later
}

// call calls a host function and then lets the work behind it go on.
func (g *GPU) call(o *op) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, id := o.ctx.proc, threadID()
	g.mu.Lock()
	ended := p.dying
	p.hosts[id] = true
	g.order.HostWaited(o.at) // the function may let other goroutines go on
	g.mu.Unlock()
	defer func() { // also where the function ends the goroutine
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(p.hosts, id)
		o.ctx.calling = false
		if !p.dying {
			g.advance()
			g.settle(o)
		}
		g.advance()
		g.rouse()
	}()
	if !ended {
		o.host.Call()
	}
}

// readyTo is ready for a call of fn. On the thread of a host function only the
// few calls are permitted that a real driver was seen to take.
func (p *Process) readyTo(fn string) driver.Result {
	switch {
	case p.dying:
		return driver.ErrorDeinitialized
	case !p.initialized:
		return driver.ErrorNotInitialized
	case len(p.hosts) == 0 || !p.hosts[threadID()]:
		return driver.Success
	}
	switch fn {
	case "EventQuery", "EventRecord", "StreamQuery":
		return driver.Success
	}
	p.misuse("host function", "it called the driver, which is not permitted there")
	return driver.ErrorNotPermitted
}
