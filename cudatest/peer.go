package cudatest

import "github.com/purecuda/cuda/driver"

// reaches reports whether kernels and sets on c may touch b: memory of their own
// device, pinned host memory, and that of other devices to which access was
// given. Copies ask for less: see Process.unreachable.
func (p *Process) reaches(c *context, b *block) bool {
	switch {
	case b.host, b.mem.dev == c.dev:
		return true
	case b.chunk != nil:
		return b.chunk.pool.access[c.dev]
	case b.opened > 0: // opening gives access to the context that opens
		return b.ctx == c
	}
	return c.peers[b.ctx]
}

// peers reports whether a device of the machine may access another's memory.
func (g *GPU) peers(d, peer *device) bool { return d != peer && !g.conf.NoPeerAccess }

// deviceCanAccessPeer needs no context.
func (p *Process) deviceCanAccessPeer(d, peer driver.Device) (int32, driver.Result) {
	for _, each := range []driver.Device{d, peer} {
		if r := p.device(each); r != driver.Success {
			return 0, r
		}
	}
	if p.gpu.peers(p.devices[d], p.devices[peer]) {
		return 1, driver.Success
	}
	return 0, driver.Success
}

func (p *Process) ctxEnablePeerAccess(peer driver.Context, flags uint32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, to, r := p.peer("CtxEnablePeerAccess", peer)
	switch {
	case r != driver.Success:
		return r
	case flags != 0:
		return driver.ErrorInvalidValue
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	case !p.gpu.peers(c.dev, to.dev):
		return driver.ErrorPeerAccessUnsupported
	case c.peers[to]:
		return driver.ErrorPeerAccessAlreadyEnabled
	}
	if c.peers == nil {
		c.peers = map[*context]bool{}
	}
	c.peers[to] = true
	return driver.Success
}

func (p *Process) ctxDisablePeerAccess(peer driver.Context) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	c, to, r := p.peer("CtxDisablePeerAccess", peer)
	switch {
	case r != driver.Success:
		return r
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	case !c.peers[to]:
		return driver.ErrorPeerAccessNotEnabled
	}
	delete(c.peers, to)
	return driver.Success
}

// peer finds the calling thread's context and another one by its handle.
func (p *Process) peer(fn string, h driver.Context) (c, to *context, r driver.Result) {
	c, r = p.here(fn)
	if r != driver.Success {
		return nil, nil, r
	}
	to, r = p.retained(fn, h)
	return c, to, r
}
