package order_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/order"
)

func TestMemory(t *testing.T) {
	type step struct {
		sequence, from, to int
		kind               order.Kind
	}
	const read, write, atomic = order.Read, order.Write, order.Atomic
	for name, c := range map[string]struct {
		steps []step
		races string
	}{
		"reads":                          {[]step{{0, 0, 8, read}, {1, 0, 8, read}}, ""},
		"atomics":                        {[]step{{0, 0, 8, atomic}, {1, 0, 8, atomic}}, ""},
		"writes":                         {[]step{{0, 0, 8, write}, {1, 0, 8, write}}, "0-1 at 0-8 "},
		"a write and a read":             {[]step{{0, 0, 8, write}, {1, 0, 8, read}}, "0-1 at 0-8 "},
		"a read and a write":             {[]step{{0, 0, 8, read}, {1, 0, 8, write}}, "0-1 at 0-8 "},
		"a read and an atomic":           {[]step{{0, 0, 8, read}, {1, 0, 8, atomic}}, "0-1 at 0-8 "},
		"an atomic and a read":           {[]step{{0, 0, 8, atomic}, {1, 0, 8, read}}, "0-1 at 0-8 "},
		"an atomic and a write":          {[]step{{0, 0, 8, atomic}, {1, 0, 8, write}}, "0-1 at 0-8 "},
		"two reads and a write":          {[]step{{0, 0, 8, read}, {1, 0, 8, read}, {2, 0, 8, write}}, "0-2 at 0-8 1-2 at 0-8 "},
		"neighbours":                     {[]step{{0, 0, 4, write}, {1, 4, 8, write}}, ""},
		"no bytes":                       {[]step{{0, 0, 8, write}, {1, 4, 4, write}}, ""},
		"an overlap":                     {[]step{{0, 0, 5, write}, {1, 4, 8, write}}, "0-1 at 4-5 "},
		"within":                         {[]step{{0, 0, 8, write}, {1, 2, 3, read}, {2, 6, 7, read}}, "0-1 at 2-3 0-2 at 6-7 "},
		"around":                         {[]step{{0, 2, 3, write}, {1, 0, 8, write}}, "0-1 at 2-3 "},
		"over several":                   {[]step{{0, 0, 3, write}, {1, 3, 6, write}, {2, 2, 4, read}}, "0-2 at 2-3 1-2 at 3-4 "},
		"the latest write counts":        {[]step{{0, 0, 8, write}, {0, 0, 8, write}, {1, 0, 8, read}}, "1-2 at 0-8 "},
		"a write between stays apart":    {[]step{{0, 0, 8, write}, {0, 2, 4, write}, {1, 0, 8, read}}, "0-2 at 0-2 1-2 at 2-4 0-2 at 4-8 "},
		"a read does not hide a write":   {[]step{{0, 0, 8, write}, {0, 0, 8, read}, {1, 0, 8, read}}, "0-2 at 0-8 "},
		"an atomic does not hide a read": {[]step{{0, 0, 8, read}, {0, 0, 8, atomic}, {1, 0, 8, atomic}}, "0-2 at 0-8 "},
		"another atomic hides an atomic": {[]step{{0, 0, 8, atomic}, {0, 0, 8, atomic}, {1, 0, 8, read}}, "1-2 at 0-8 "},
		"reported once, a write counts":  {[]step{{0, 0, 8, write}, {1, 0, 8, write}, {2, 0, 8, read}}, "0-1 at 0-8 1-2 at 0-8 "},
	} {
		t.Run(name, func(t *testing.T) {
			var tr order.Tracker
			var m order.Memory
			var seqs [3]*order.Sequence
			for i := range seqs {
				seqs[i] = tr.NewSequence()
			}
			races := ""
			for i, s := range c.steps {
				a := order.Access{From: uint64(s.from), To: uint64(s.to), Kind: s.kind, At: seqs[s.sequence].Next(), By: i}
				tr.Access(&m, a, func(earlier order.Access, from, to uint64) bool {
					races += fmt.Sprintf("%v-%d at %d-%d ", earlier.By, i, from, to)
					return true
				})
			}
			require.Equal(t, c.races, races)
		})
	}
}

// An operation may do several things, side by side.
func TestMemoryOfOneOperation(t *testing.T) {
	var tr order.Tracker
	var m order.Memory
	a, b := tr.NewSequence().Next(), tr.NewSequence().Next()
	races := ""
	report := func(_ order.Access, from, to uint64) bool {
		races += fmt.Sprintf("%d-%d ", from, to)
		return true
	}
	tr.Access(&m, order.Access{From: 0, To: 4, Kind: order.Read, At: a}, report)
	tr.Access(&m, order.Access{From: 2, To: 8, Kind: order.Write, At: a}, report)
	require.Empty(t, races)
	tr.Access(&m, order.Access{From: 0, To: 8, Kind: order.Read, At: b}, report)
	require.Equal(t, "2-8 ", races)
}

// The number of parts that are kept has a limit.
func TestMemoryOfManyParts(t *testing.T) {
	var tr order.Tracker
	var m order.Memory
	s := tr.NewSequence()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	first := s.Next()
	tr.Access(&m, order.Access{To: 1, Kind: order.Write, At: first}, nil)
	for i := range uint64(1 << 18) {
		tr.Access(&m, order.Access{From: 2 * i, To: 2*i + 1, Kind: order.Write, At: s.Next()}, nil)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.True(t, slices.ContainsFunc(m.Writers(0, 1), func(p order.Point) bool { return tr.Before(first, p) }))
	require.Less(t, after.HeapAlloc, before.HeapAlloc+16<<20)
}

// Whatever bytes are accessed, each byte has the races that it would have alone.
func TestMemoryIsBytes(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var tr order.Tracker
		const size = 12
		var whole order.Memory
		var bytes [size]order.Memory
		seqs := []*order.Sequence{tr.NewSequence(), tr.NewSequence(), tr.NewSequence()}
		for range 60 {
			s := seqs[r.IntN(len(seqs))]
			if r.IntN(3) == 0 {
				s.Join(seqs[r.IntN(len(seqs))].Last())
			}
			from := r.Uint64N(size)
			to := from + r.Uint64N(size-from+1)
			a := order.Access{From: from, To: to, Kind: order.Kind(r.IntN(3)), At: s.Next(), By: s}
			var got, want [size]int
			tr.Access(&whole, a, func(_ order.Access, from, to uint64) bool {
				for i := from; i < to; i++ {
					got[i]++
				}
				return true
			})
			for i := from; i < to; i++ {
				a.From, a.To = 0, 1
				tr.Access(&bytes[i], a, func(order.Access, uint64, uint64) bool {
					want[i]++
					return true
				})
			}
			require.Equal(t, want, got, "seed %d", seed)
		}
	}
}

// The writers of bytes are those that no later write has covered.
func TestWriters(t *testing.T) {
	var tr order.Tracker
	var m order.Memory
	a, b, c := tr.NewSequence(), tr.NewSequence(), tr.NewSequence()
	none := func(order.Access, uint64, uint64) bool {
		t.Error("a race")
		return true
	}
	write := func(s *order.Sequence, from, to uint64, kind order.Kind) {
		tr.Access(&m, order.Access{From: from, To: to, Kind: kind, At: s.Next()}, none)
	}
	require.Len(t, m.Writers(0, 8), 1) // what was forgotten
	write(a, 0, 4, order.Write)
	write(b, 4, 8, order.Atomic)
	write(c, 8, 9, order.Read)
	require.Len(t, m.Writers(0, 4), 2)
	require.Len(t, m.Writers(3, 5), 3)
	require.Len(t, m.Writers(4, 8), 2)
	require.Len(t, m.Writers(8, 12), 1)
}

func BenchmarkAccess(b *testing.B) {
	var tr order.Tracker
	var m order.Memory
	s := tr.NewSequence()
	b.ReportAllocs()
	for b.Loop() {
		tr.Access(&m, order.Access{To: 64, Kind: order.Write, At: s.Next()}, func(order.Access, uint64, uint64) bool { return true })
	}
}
