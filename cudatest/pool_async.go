package cudatest

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// Allocation and release in stream order.

func (p *Process) memAllocFromPoolAsync(n uint64, h driver.MemPool, on driver.Stream) (driver.DevicePtr, driver.Result) {
	const fn = "MemAllocFromPoolAsync"
	defer p.enter(fn, on, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, on)
	if r != driver.Success {
		return 0, r
	}
	q, r := p.pool(fn, h)
	if r != driver.Success {
		return 0, r
	}
	if r := s.implicit(); r != driver.Success {
		return 0, r
	}
	switch {
	case s.capture != nil: // a real one adds a node: there are none for memory here
		s.capture.kill()
		return 0, driver.ErrorStreamCaptureUnsupported
	case p.forbidden():
		return 0, driver.ErrorStreamCaptureUnsupported
	case n == 0:
		return 0, driver.Success
	}
	c := q.take(n, s)
	if c == nil {
		return 0, driver.ErrorOutOfMemory
	}
	b := &block{ctx: p.primary(p.number(q.dev)), base: c.base, size: n, data: c.data[:n:n], mem: c.mem, chunk: c, history: c.history, made: callsite.Caller()}
	p.insert(b)
	s.sequence.Join(c.freed) // the driver orders an allocation after the free
	s.poison(b, "allocation")
	return driver.DevicePtr(b.base), driver.Success
}

// poison enqueues a fill of b's chunk with Poison, so that a use before the allocation or after
// the free shows.
func (s *stream) poison(b *block, what string) {
	data, uses := b.chunk.data, []use{b.all()}
	s.submit(&op{task: s.task(what), effect: func() []use {
		fill(data, []byte{Poison})
		return uses
	}})
}

func (p *Process) memFreeAsync(addr driver.DevicePtr, on driver.Stream) driver.Result {
	const fn = "MemFreeAsync"
	defer p.enter(fn, on, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, on)
	if r != driver.Success {
		return r
	}
	if r := s.implicit(); r != driver.Success {
		return r
	}
	b := p.begins(uint64(addr))
	switch {
	case s.capture == nil && p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	case addr == 0:
		return driver.Success
	case b == nil || b.host || b.opened > 0 || b.data == nil:
		p.misuse(fn, "%#x is not the beginning of allocated device memory", addr)
		return driver.ErrorInvalidValue
	case s.capture != nil:
		p.misuse(fn, "%#x was not allocated in the capture", addr)
		return driver.ErrorInvalidValue
	case b.chunk == nil:
		// Its address is never given out again, so it counts as free at once; what
		// runs until the free is reached still uses it.
		data := b.data
		p.remove(b)
		b.data = data
		uses := []use{b.all()}
		s.submit(&op{task: s.task("free"), effect: func() []use {
			b.data = nil
			return uses
		}})
		return driver.Success
	}
	s.poison(b, "free")
	b.chunk.pool.put(b, s, s.sequence.Last(), s.tail)
	return driver.Success
}
