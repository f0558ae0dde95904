package cudatest

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/purecuda/cuda/internal/order"
)

// task says what an operation is, for a report.
type task struct {
	what     string
	stream   *stream
	at       site
	launched *site // where the graph was launched whose node it is
}

// task describes an operation that uses memory and is being put on s.
func (s *stream) task(what string) *task {
	t := &task{what: what, stream: s}
	runtime.Callers(2, t.at[:])
	return t
}

// inGraph returns what describes a node of a graph that was launched on s; nil if t is.
func (t *task) inGraph(s *stream, launched *site) *task {
	if t == nil {
		return nil
	}
	return &task{what: t.what, stream: s, at: t.at, launched: launched}
}

// String names the operation and its line.
func (t *task) String() string {
	if t.launched != nil {
		return fmt.Sprintf("%s at %v, of the graph launched at %v,", t.what, t.at, t.launched)
	}
	return fmt.Sprintf("%s at %v", t.what, t.at)
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
			g.order.Access(u.block.history, a, func(earlier order.Access, from, to uint64) {
				g.race(u.block, earlier, a, from, to)
			})
		}
		if u.kind == order.Atomic && u.block.host { // the CPU may look at it at any time
			g.order.HostWaited(o.at)
		}
	}
}

// mostRaces is how many races are kept.
const mostRaces = 100

func (g *GPU) race(b *block, earlier, later order.Access, from, to uint64) {
	first, second := earlier.By.(*task), later.By.(*task)
	lines := [2]string{first.at.String(), second.at.String()}
	slices.Sort(lines[:])
	if len(g.races) == mostRaces || g.raced[lines] {
		return
	}
	if g.raced == nil {
		g.raced = map[[2]string]bool{}
	}
	g.raced[lines] = true
	does := [...]string{order.Read: "reads", order.Write: "writes", order.Atomic: "atomically changes"}
	g.races = append(g.races, fmt.Sprintf("race: %v and %v are not ordered; "+
		"add an event that is recorded after one and waited for before the other, or WaitStream\n"+
		"\t%s on %v %s bytes %d to %d of the memory made at %v\n"+
		"\t%s on %v %s them",
		first, second,
		first.what, first.stream, does[earlier.Kind], from, to-1, b.made,
		second.what, second.stream, does[later.Kind]))
}
