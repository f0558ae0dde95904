package order

import (
	"math"
	"slices"
)

// Memory is the accesses to an allocation that later ones may be in a race with. The zero
// value is memory that nobody has touched.
type Memory struct {
	parts     []part // in the order of their bytes; none is empty, and none overlap
	forgotten Point  // after the writes of parts that are not kept any more
}

// part is bytes that had the same accesses. The slice is shared and never changes.
type part struct {
	from, to uint64
	accesses []Access
}

// Access is what an operation did with bytes of memory.
type Access struct {
	From, To uint64 // the bytes, To excluded
	Kind     Kind
	At       Point // which is an operation
	By       any   // for reports
}

// Kind is how an operation uses memory.
type Kind uint8

const (
	Read   Kind = iota
	Write       // or read and write
	Atomic      // read and write, as others may do at the same time
)

// races reports whether accesses of both kinds must be ordered.
func (k Kind) races(l Kind) bool { return k == Write || l == Write || k != l }

// covers reports whether what must be ordered with l must be ordered with k.
func (k Kind) covers(l Kind) bool { return k == Write || k == l }

// mostParts is how many parts are kept. With more, all are dropped, and a race may be missed.
const mostParts = 1 << 15

// mostUnjudged is how many accesses of a part are kept that race did not judge.
const mostUnjudged = 64

// Access notes an access. It calls race for each earlier one to the same bytes that does not come
// before it and should; race returns false if that may turn out to be ordered, so that later
// accesses are still compared with the earlier one. Accesses must come in an order that the
// operations can have had.
func (t *Tracker) Access(m *Memory, a Access, race func(earlier Access, from, to uint64) (judged bool)) {
	if a.From >= a.To {
		return
	}
	if len(m.parts) > mostParts {
		m.forgotten = Merge(m.Writers(0, math.MaxUint64)...)
		m.parts = nil
	}
	first, _ := slices.BinarySearchFunc(m.parts, a.From, func(p part, from uint64) int {
		if p.to <= from {
			return -1
		}
		return 1
	})
	end := first
	var parts []part
	at := a.From // up to here it is in parts
	for ; end < len(m.parts) && m.parts[end].from < a.To; end++ {
		p := m.parts[end]
		from, to := max(p.from, a.From), min(p.to, a.To)
		if p.from < from {
			parts = append(parts, part{p.from, from, p.accesses})
		}
		if at < from {
			parts = append(parts, part{at, from, []Access{a}})
		}
		parts = append(parts, part{from, to, t.added(p.accesses, a, func(earlier Access) bool { return race(earlier, from, to) })})
		if to < p.to {
			parts = append(parts, part{to, p.to, p.accesses})
		}
		at = to
	}
	if at < a.To {
		parts = append(parts, part{at, a.To, []Access{a}})
	}
	m.parts = slices.Replace(m.parts, first, end, merged(parts)...)
}

// added returns accesses with a, without those that matter no more.
func (t *Tracker) added(accesses []Access, a Access, race func(earlier Access) (judged bool)) []Access {
	kept := make([]Access, 0, len(accesses)+1)
	for _, b := range accesses {
		before := t.Before(b.At, a.At)
		if !before && a.Kind.races(b.Kind) {
			before = race(b) || len(kept) >= mostUnjudged
		}
		if !before || !a.Kind.covers(b.Kind) {
			kept = append(kept, b)
		}
	}
	return append(kept, a)
}

// merged joins those parts, which have no gaps between them, that only one and the same operation
// has accessed.
func merged(parts []part) []part {
	kept := parts[:0]
	for _, p := range parts {
		if n := len(kept); n > 0 && p.sole() && kept[n-1].sole() && p.accesses[0].like(kept[n-1].accesses[0]) {
			kept[n-1].to = p.to
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func (p part) sole() bool { return len(p.accesses) == 1 }

// Writers returns points after which the bytes were written last.
func (m *Memory) Writers(from, to uint64) []Point {
	points := []Point{m.forgotten}
	for _, p := range m.parts {
		if p.to <= from || p.from >= to {
			continue
		}
		for _, a := range p.accesses {
			if a.Kind != Read {
				points = append(points, a.At)
			}
		}
	}
	return points
}

// like reports whether both accesses are of one operation and of one kind.
func (a Access) like(b Access) bool {
	return a.At.sequence == b.At.sequence && a.At.n == b.At.n && a.Kind == b.Kind
}
