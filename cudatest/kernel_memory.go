package cudatest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/purecuda/cuda/internal/order"
)

// What a kernel has read and written is told from the memory that it got, and from what has changed
// there when it has run.

// touches is the memory that a kernel has got.
type touches struct {
	uses   map[use]bool // as writes, or as atomic
	before map[*block]snapshot
}

// snapshot is what was in bytes of a block before the kernel got them.
type snapshot struct {
	from uint64
	data []byte
}

// touch notes what the kernel gets.
func (l *Launch) touch(e end, kind order.Kind) {
	u := e.use(kind)
	if l.f.mod.ctx.proc.gpu.conf.AllowRaces || l.touched.uses[u] {
		return
	}
	if l.touched.uses == nil {
		l.touched = touches{map[use]bool{}, map[*block]snapshot{}}
	}
	l.touched.uses[u] = true
	if kind == order.Atomic {
		return
	}
	s, some := l.touched.before[e.block]
	switch {
	case !some:
		l.touched.before[e.block] = snapshot{e.from, bytes.Clone(e.data)}
	case u.from < s.from || u.to > s.from+uint64(len(s.data)): // it gets the block in pieces
		_, data := l.find(e.block.base)
		data = bytes.Clone(data)
		copy(data[s.from:], s.data)
		l.touched.before[e.block] = snapshot{data: data}
	}
}

// uses says what memory the kernel has used, when it has run.
func (l *Launch) uses() (uses []use) {
	for _, u := range l.touched.ranges() {
		if u.kind == order.Write {
			u = l.changed(u)
		}
		uses = append(uses, u)
	}
	return uses
}

// ranges returns the uses in order, with those as one that overlap or follow each other.
func (t *touches) ranges() (ranges []use) {
	all := make([]use, 0, len(t.uses))
	for u := range t.uses {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.block.base, b.block.base), cmp.Compare(a.kind, b.kind), cmp.Compare(a.from, b.from))
	})
	for _, u := range all {
		if n := len(ranges); n > 0 && ranges[n-1].block == u.block && ranges[n-1].kind == u.kind && ranges[n-1].to >= u.from {
			ranges[n-1].to = max(ranges[n-1].to, u.to)
			continue
		}
		ranges = append(ranges, u)
	}
	return ranges
}

// changed returns what was written of u, from the first byte that has changed to the last; u as
// read, if none has.
func (l *Launch) changed(u use) use {
	s := l.touched.before[u.block]
	before := s.data[u.from-s.from : u.to-s.from]
	_, data := l.find(u.block.base)
	data = data[u.from:u.to]
	if bytes.Equal(data, before) {
		u.kind = order.Read
		return u
	}
	from, to := 0, len(data)
	for data[from] == before[from] {
		from++
	}
	for data[to-1] == before[to-1] {
		to--
	}
	u.from, u.to = u.from+uint64(from), u.from+uint64(to)
	return u
}
