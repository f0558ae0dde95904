package wait

import (
	"math/rand/v2"
	"time"
)

// entry is a point that some wait for. The entries of a queue form a tree.
type entry struct {
	point       Point
	queue       *queue // nil when it is over or nobody waits for it any more
	first, last uint64 // its place there
	number      uint64 // orders those with the same last; at least 1
	began       time.Time
	waiters     []*waiter
	node
}

// node makes an entry part of a binary tree in the order of last, in which the greatest
// priority is at the root. As priorities are random, the tree is about 2 log n deep.
type node struct {
	left, right *entry
	size        int    // of the tree below and with it
	least       uint64 // the least first of that
	priority    uint32
}

// single makes e a tree of its own.
func (e *entry) single() *entry {
	e.node = node{priority: rand.Uint32()}
	e.update()
	return e
}

// update computes what an entry knows about the tree below it.
func (e *entry) update() {
	e.size, e.least = 1, e.first
	for _, child := range [...]*entry{e.left, e.right} {
		if child != nil {
			e.size += child.size
			e.least = min(e.least, child.least)
		}
	}
}

// split takes the tree apart into what comes before an entry with these numbers, and the
// rest.
func (e *entry) split(last, number uint64) (before, rest *entry) {
	if e == nil {
		return nil, nil
	}
	if e.last < last || e.last == last && e.number < number {
		e.right, rest = e.right.split(last, number)
		e.update()
		return e, rest
	}
	before, e.left = e.left.split(last, number)
	e.update()
	return before, e
}

// merge joins two trees of which the first comes before the second.
func merge(a, b *entry) *entry {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = merge(a.right, b)
		a.update()
		return a
	}
	b.left = merge(a, b.left)
	b.update()
	return b
}

func (e *entry) oldest() *entry {
	for e.left != nil {
		e = e.left
	}
	return e
}

func (e *entry) newest() *entry {
	for e.right != nil {
		e = e.right
	}
	return e
}

// index returns the entry with this index.
func (e *entry) index(i int) *entry {
	for {
		n := 0
		if e.left != nil {
			n = e.left.size
		}
		switch {
		case i < n:
			e = e.left
		case i == n:
			return e
		default:
			e, i = e.right, i-n-1
		}
	}
}

// each calls f for all entries, in order.
func (e *entry) each(f func(*entry)) {
	for e != nil {
		e.left.each(f)
		right := e.right
		f(e)
		e = right
	}
}

// from calls f for the entries whose first is not after last, in order.
func (e *entry) from(last uint64, f func(*entry)) {
	for e != nil && e.least <= last {
		e.left.from(last, f)
		if e.first <= last {
			f(e)
		}
		e = e.right
	}
}
