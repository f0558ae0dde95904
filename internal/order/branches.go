package order

import "slices"

// Branches shares the nodes of a graph out among sequences, so that nodes that may run at the
// same time are on different ones. The zero value is ready, for one launch after the other.
type Branches[N comparable] struct {
	own []*Sequence // those beside the stream's
}

// Launch begins a launch on the sequence of a stream. The function that it returns says which
// sequence a node is on that comes after others. It is called for each node of the graph, and
// for what a node comes after before.
func (b *Branches[N]) Launch(t *Tracker, stream *Sequence) (of func(n N, after []N) *Sequence) {
	type branch struct {
		*Sequence
		used bool
		last N
	}
	branches := []branch{{Sequence: stream}}
	for _, s := range b.own {
		branches = append(branches, branch{Sequence: s})
	}
	return func(n N, after []N) *Sequence {
		for i := range branches {
			if x := &branches[i]; !x.used || slices.Contains(after, x.last) {
				x.used, x.last = true, n
				return x.Sequence
			}
		}
		s := t.NewSequence()
		b.own = append(b.own, s)
		branches = append(branches, branch{s, true, n})
		return s
	}
}

// Retire ends the use of the sequences.
func (b *Branches[N]) Retire() {
	for _, s := range b.own {
		s.Retire()
	}
}
