package wait

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A queue does what a sorted list does.
func TestTree(t *testing.T) {
	var q queue
	var list []*entry
	sorted := func() {
		slices.SortFunc(list, func(a, b *entry) int {
			switch {
			case a.last < b.last || a.last == b.last && a.number < b.number:
				return -1
			default:
				return 1
			}
		})
	}
	for n := range 3000 {
		switch k := rand.IntN(10); {
		case k < 6 || len(list) == 0:
			last := rand.Uint64N(200)
			e := &entry{last: last, first: last - min(last, rand.Uint64N(10)), number: uint64(n + 1)}
			q.insert(e)
			list = append(list, e)
			sorted()
		case k < 9:
			i := rand.IntN(len(list))
			q.remove(list[i])
			list = slices.Delete(list, i, i+1)
		default:
			first := rand.Uint64N(20)
			var taken []*entry
			q.takeBefore(first).each(func(e *entry) { taken = append(taken, e) })
			i := 0
			for i < len(list) && list[i].last < first {
				i++
			}
			require.Equal(t, append([]*entry(nil), list[:i]...), taken)
			list = list[i:]
		}
		if len(list) == 0 {
			require.Nil(t, q.root)
			continue
		}
		require.Equal(t, len(list), q.root.size)
		require.Same(t, list[0], q.root.oldest())
		require.Same(t, list[len(list)-1], q.root.newest())
		i := rand.IntN(len(list))
		require.Same(t, list[i], q.root.index(i))
		var want, got []*entry
		for _, e := range list {
			if e.first <= list[0].last {
				want = append(want, e)
			}
		}
		q.root.from(list[0].last, func(e *entry) { got = append(got, e) })
		require.True(t, slices.Equal(want, got))
	}
}

// depth is how deep the tree is.
func (e *entry) depth() int {
	if e == nil {
		return 0
	}
	return 1 + max(e.left.depth(), e.right.depth())
}

func TestTreeIsNotDeep(t *testing.T) {
	var q queue
	for n := range uint64(10_000) {
		q.insert(&entry{first: n, last: n, number: n + 1})
	}
	require.Less(t, q.root.depth(), 60)
}

func TestOwnerIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Owner{}), uintptr(24))
}
