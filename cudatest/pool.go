package cudatest

import (
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// pool is the default memory pool of a device in a process.
//
// It reserves what it is asked for, in chunks that it neither splits nor joins.
// Memory that was freed is given out again, the same bytes at the same address:
// at once to the stream that it was freed on, to others once that free has been
// reached. A real pool also follows events and may make a stream wait for
// another's free.
type pool struct {
	dev    *device
	proc   *Process
	handle driver.MemPool
	access map[*device]bool // the other devices that may touch its memory

	threshold uint64 // how much stays reserved over a synchronization
	reserved  figure
	used      figure
	unused    []*chunk // in the order of their frees
}

// chunk is memory that a pool reserves.
type chunk struct {
	pool *pool
	base uint64
	data []byte
	mem  *extent
	used uint64 // how much of it the allocation in it is

	history *order.Memory

	freedOn *stream // nil: not on a stream
	freed   order.Point
	frees   []*op // when these are done it is anybody's
}

// figure is a number of bytes and the greatest that it was.
type figure struct{ current, high uint64 }

func (f *figure) add(n uint64) {
	f.current += n
	f.high = max(f.high, f.current)
}

const (
	poolBase      uint64 = 0x56d0_4000_0000
	poolStep      uint64 = 0x1000
	poolAlignment        = 512 // what sizes of pool memory are rounded to
)

func (p *Process) poolHandle(d *device) driver.MemPool {
	return driver.MemPool(p.gpu.handle(poolBase, poolStep, uint64(p.num*deviceLimit+d.ordinal)))
}

// defaultPool returns the pool of a device; it is made when first asked for.
func (p *Process) defaultPool(d *device) *pool {
	q := p.pools[d]
	if q == nil {
		q = &pool{dev: d, proc: p, handle: p.poolHandle(d), access: map[*device]bool{}}
		p.pools[d] = q
	}
	return q
}

// pool finds the pool of a handle, for calls at the present. No context is
// needed. fn names the caller.
func (p *Process) pool(fn string, h driver.MemPool) (*pool, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	for i, d := range p.devices {
		if p.poolHandle(d) != h || p.gpu.conf.NoMemoryPools {
			continue
		}
		p.gpu.advance()
		if c := p.contexts[i]; c != nil && c.fault != driver.Success {
			return nil, c.fault
		}
		return p.defaultPool(d), driver.Success
	}
	p.misuse(fn, "no memory pool has the handle %#x", h)
	return nil, driver.ErrorInvalidValue
}

// pending reports whether the free of the chunk has not been reached.
func (c *chunk) pending() bool { return slices.ContainsFunc(c.frees, (*op).pending) }

// take returns a chunk for n bytes that work on s may use from now on, nil if
// there is no memory.
func (q *pool) take(n uint64, s *stream) *chunk {
	size := n + (-n)%poolAlignment
	if size < n {
		return nil
	}
	best := -1
	for i, c := range q.unused {
		fits := c.mem.size >= size && c.mem.size/2 <= size
		ours := c.freedOn == s || !c.pending()
		if fits && ours && (best < 0 || c.mem.size < q.unused[best].mem.size) {
			best = i
		}
	}
	var c *chunk
	switch {
	case best >= 0:
		c = q.unused[best]
		q.unused = slices.Delete(q.unused, best, best+1)
	case q.proc.room(q.dev, size):
		c = q.reserve(size)
	default:
		return nil
	}
	c.used = n
	q.used.add(n)
	return c
}

// reserve makes a chunk, at an address of its own with a gap behind it.
func (q *pool) reserve(size uint64) *chunk {
	d := q.dev
	c := &chunk{pool: q, base: d.next, data: fresh(size, poolAlignment), mem: &extent{dev: d, size: size, refs: 1}, history: new(order.Memory)}
	d.next += size + poolAlignment
	d.used += size
	q.reserved.add(size)
	return c
}

// put takes the memory of b, which was freed on s, back when all of frees, which
// come before the point freed, are done. The address means nothing to the process any more.
func (q *pool) put(b *block, s *stream, freed order.Point, frees ...*op) {
	q.proc.forget(b)
	b.data = nil
	c := b.chunk
	c.freedOn, c.freed, c.frees = s, freed, frees
	q.unused = append(q.unused, c)
	q.used.current -= c.used
}

// shrink gives unused memory back to the device, the oldest first, until no more
// than keep is reserved. Memory whose free has not been reached stays.
func (q *pool) shrink(keep uint64) {
	q.unused = slices.DeleteFunc(q.unused, func(c *chunk) bool {
		if q.reserved.current <= keep || c.pending() {
			return false
		}
		q.dev.used -= c.mem.size
		q.reserved.current -= c.mem.size
		return true
	})
}

// shrinkPools is what pools do when the process has waited for the device.
func (p *Process) shrinkPools() {
	for _, q := range p.pools {
		q.shrink(q.threshold)
	}
}

// dropPool forgets the pool of a device. Its allocations are blocks of the
// process, which released their memory themselves.
func (p *Process) dropPool(d *device) {
	q := p.pools[d]
	if q == nil {
		return
	}
	for _, c := range q.unused {
		d.used -= c.mem.size
	}
	delete(p.pools, d)
}

// room reports whether a device has n bytes left, if need be by taking what the
// process's pool does not use.
func (p *Process) room(d *device, n uint64) bool {
	if q := p.pools[d]; q != nil && n > p.gpu.conf.Memory-d.used {
		q.shrink(0)
	}
	return n <= p.gpu.conf.Memory-d.used
}
