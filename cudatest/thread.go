package cudatest

import "github.com/purecuda/cuda/driver"

// thread is what the driver keeps for an OS thread.
type thread struct {
	stack []int // ordinals of the devices whose primary contexts were pushed
	mode  driver.CaptureMode
}

// thread returns the calling thread's entry; keep makes one if need be.
func (p *Process) thread(keep bool) *thread {
	id := threadID()
	t := p.threads[id]
	if t == nil {
		t = &thread{}
		if keep {
			p.threads[id] = t
		}
	}
	return t
}

// tidy forgets the calling thread if there is nothing to remember of it:
// threads come and go.
func (p *Process) tidy(t *thread) {
	if len(t.stack) == 0 && t.mode == driver.CaptureModeGlobal {
		delete(p.threads, threadID())
	}
}

// current returns the calling thread's current context. fn names the caller.
func (p *Process) current(fn string) (*context, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	t := p.thread(false)
	if len(t.stack) == 0 {
		p.misuse(fn, "no context is current on the calling thread")
		return nil, driver.ErrorInvalidContext
	}
	c := p.contexts[t.stack[len(t.stack)-1]]
	if c == nil || c.refs == 0 {
		p.misuse(fn, "the current context was released")
		return nil, driver.ErrorContextIsDestroyed
	}
	return c, driver.Success
}

// here is current for calls at the present, which a broken context refuses.
func (p *Process) here(fn string) (*context, driver.Result) {
	c, r := p.current(fn)
	if r != driver.Success {
		return nil, r
	}
	p.gpu.advance()
	return c, c.fault
}

func (p *Process) ctxPushCurrent(h driver.Context) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return r
	}
	if h == 0 {
		return driver.ErrorInvalidValue
	}
	ordinal := p.ordinal(h)
	if ordinal < 0 {
		p.misuse("CtxPushCurrent", "unknown context %#x", h)
		return driver.ErrorInvalidContext
	}
	t := p.thread(true)
	t.stack = append(t.stack, ordinal)
	return driver.Success
}

func (p *Process) ctxPopCurrent() (driver.Context, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return 0, r
	}
	t := p.thread(false)
	if len(t.stack) == 0 {
		p.misuse("CtxPopCurrent", "no context is current on the calling thread")
		return 0, driver.ErrorInvalidContext
	}
	ordinal := t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
	p.tidy(t)
	return p.contextHandle(ordinal), driver.Success
}

func (p *Process) ctxGetCurrent() (driver.Context, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return 0, r
	}
	t := p.thread(false)
	if len(t.stack) == 0 {
		return 0, driver.Success
	}
	return p.contextHandle(t.stack[len(t.stack)-1]), driver.Success
}

func (p *Process) ctxGetDevice() (driver.Device, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, r := p.current("CtxGetDevice")
	if r != driver.Success {
		return 0, r
	}
	return driver.Device(c.ordinal), driver.Success
}
