package cudatest

import (
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/internal/order"
	"github.com/purecuda/cuda/internal/races"
)

// task describes an operation that uses memory and is being put on s.
func (s *stream) task(what string) *races.Task {
	t := &races.Task{What: what, Stream: s}
	runtime.Callers(2, t.At[:])
	return t
}

// String names a stream by where it was made.
func (s *stream) String() string {
	if s.legacy {
		return fmt.Sprintf("default stream of device %d", s.ctx.ordinal)
	}
	return fmt.Sprintf("stream made at %v", s.made)
}

// use is bytes of memory that an operation has used.
type use struct {
	block    *block // nil: memory of which nothing is noted
	from, to uint64
	kind     order.Kind
}

// use describes what an operation does with all of e.
func (e end) use(kind order.Kind) use {
	return use{e.block, e.from, e.from + uint64(len(e.data)), kind}
}

// all describes all of the block, for what begins or ends the use of its bytes.
func (b *block) all() use { return use{b, 0, b.size, order.Write} }

// used notes what memory o, which is being done, has used, and the races.
func (g *GPU) used(o *op, uses []use) {
	for _, u := range uses {
		if u.block == nil {
			continue
		}
		if !g.conf.AllowRaces {
			a := order.Access{From: u.from, To: u.to, Kind: u.kind, At: o.at, By: o.task}
			g.order.Access(u.block.history, a, func(earlier order.Access, from, to uint64) bool {
				g.races.Add(u.block.made, earlier, a, from, to)
				return true
			})
		}
		if u.kind == order.Atomic && u.block.host { // the CPU may look at it at any time
			g.order.HostWaited(o.at)
		}
	}
}
