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

// racing returns whether q races with p, which wrote.
func racing(t *order.Tracker, p, q order.Point) bool {
	var m order.Memory
	races := 0
	report := func(order.Access, uint64, uint64) { races++ }
	t.Access(&m, order.Access{To: 1, Kind: order.Write, At: p}, report)
	t.Access(&m, order.Access{To: 1, Kind: order.Read, At: q}, report)
	return races > 0
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		ordered bool
		run     func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point)
	}{
		"one sequence": {true, func(tr *order.Tracker, a, _, _ *order.Sequence) (p, q order.Point) {
			return a.Next(), a.Next()
		}},
		"two sequences": {false, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			return a.Next(), b.Next()
		}},
		"a join": {true, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			p = a.Next()
			b.Join(a.Last())
			return p, b.Next()
		}},
		"a join of a point before": {false, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			last := a.Last()
			p = a.Next()
			b.Join(last)
			return p, b.Next()
		}},
		"joins in a row": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			p = a.Next()
			b.Join(p)
			c.Join(b.Last())
			return p, c.Next()
		}},
		"a join behind the last operation": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			b.Next()
			c.Join(b.Last()) // knows b's operation, and then what b joined after it
			p = a.Next()
			b.Join(p)
			c.Join(b.Last())
			return p, c.Next()
		}},
		"a merged point": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			p = a.Next()
			c.Join(order.Merge(b.Last(), a.Last()))
			return p, c.Next()
		}},
		"the host": {true, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			p = a.Next()
			tr.HostWaited(p)
			return p, b.Next()
		}},
		"the host, of something else": {false, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			p = a.Next()
			tr.HostWaited(c.Next())
			return p, b.Next()
		}},
		"the host, of what comes later": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			p = a.Next()
			b.Join(p)
			tr.HostWaited(b.Last())
			return p, c.Next()
		}},
		"the host, too late": {false, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			p = a.Next()
			q = b.Next()
			tr.HostWaited(p)
			return p, q
		}},
		"a word": {true, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			wait := b.Next()
			q = b.Next() // is put there before what it comes after
			p = a.Next()
			tr.Acquire(wait, a.Next())
			return p, q
		}},
		"a word that was waited for later": {false, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			q = b.Next()
			wait := b.Next()
			p = a.Next()
			tr.Acquire(wait, a.Next())
			return p, q
		}},
		"a word that the host wrote": {true, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			wait := b.Next()
			q = b.Next()
			p = a.Next()
			tr.HostWaited(p)
			tr.Acquire(wait)
			return p, q
		}},
		"what waits for a word": {true, func(tr *order.Tracker, a, b, _ *order.Sequence) (p, q order.Point) {
			q = b.Next()
			p = a.Next()
			tr.Acquire(q, p)
			return p, q
		}},
		"a word after another one": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			first, second := b.Next(), b.Next()
			q = b.Next()
			p = a.Next()
			tr.Acquire(first, p)
			tr.Acquire(second, c.Next())
			return p, q
		}},
		"a word that the host wrote after another one": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			first, second := b.Next(), c.Next()
			q = c.Next()
			p = a.Next()
			tr.Acquire(first, p)
			tr.HostWaited(first)
			tr.Acquire(second)
			return p, q
		}},
		"words in a row": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			first, second := b.Next(), c.Next()
			q = c.Next()
			p = a.Next()
			tr.Acquire(first, p)
			tr.Acquire(second, b.Next())
			return p, q
		}},
		"the host, of what a word ordered": {true, func(tr *order.Tracker, a, b, c *order.Sequence) (p, q order.Point) {
			wait := b.Next()
			p = a.Next()
			tr.Acquire(wait, p)
			tr.HostWaited(wait)
			return p, c.Next()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var tr order.Tracker
			p, q := c.run(&tr, tr.NewSequence(), tr.NewSequence(), tr.NewSequence())
			require.Equal(t, c.ordered, !racing(&tr, p, q))
		})
	}
}

// What is ordered at random is what can be reached by the edges that were made.
func TestOrderIsReachability(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tr order.Tracker
		type operation struct {
			at     order.Point
			before map[int]bool // the operations that come before it
		}
		union := func(sets ...map[int]bool) map[int]bool {
			all := map[int]bool{}
			for _, s := range sets {
				for i := range s {
					all[i] = true
				}
			}
			return all
		}
		type record struct {
			at    order.Point
			after map[int]bool
		}
		const sequences = 5
		var operations []operation
		var records []record
		var seqs [sequences]*order.Sequence
		var known [sequences]map[int]bool // what the next operation comes after
		host := map[int]bool{}
		for i := range seqs {
			seqs[i] = tr.NewSequence()
			known[i] = map[int]bool{}
		}
		for range 200 {
			i := r.IntN(sequences)
			switch r.IntN(8) {
			case 0, 1, 2: // an operation
				before := union(known[i], host)
				operations = append(operations, operation{seqs[i].Next(), before})
				known[i] = union(before, map[int]bool{len(operations) - 1: true})
			case 3: // an event is recorded
				records = append(records, record{seqs[i].Last(), known[i]})
			case 4, 5: // and waited for
				if len(records) > 0 {
					e := records[r.IntN(len(records))]
					seqs[i].Join(e.at)
					known[i] = union(known[i], e.after)
				}
			case 6: // by the host
				if len(records) > 0 && r.IntN(4) == 0 {
					e := records[r.IntN(len(records))]
					tr.HostWaited(e.at)
					host = union(host, e.after)
				}
			case 7: // a stream is destroyed and another one made
				if r.IntN(4) == 0 {
					seqs[i].Retire()
					seqs[i] = tr.NewSequence()
					known[i] = map[int]bool{}
				}
			}
		}
		for i, p := range operations {
			for j, q := range operations[i+1:] {
				require.Equal(t, q.before[i], tr.Before(p.at, q.at), "seed %d: %d before %d", seed, i, i+1+j)
			}
		}
	}
}

// Sequences are used again when the host knows all that was there.
func TestSequencesAreUsedAgain(t *testing.T) {
	var tr order.Tracker
	first := tr.NewSequence()
	p := first.Next()
	first.Retire()
	require.NotSame(t, first, tr.NewSequence())
	tr.HostWaited(p)
	require.Same(t, first, tr.NewSequence())
	require.NotSame(t, first, tr.NewSequence())
	first.Join(tr.NewSequence().Next()) // whatever it came after at last
	first.Retire()
	require.Same(t, first, tr.NewSequence())
}

// A sequence may acquire any number of times. What it came after stays known; that an older
// operation of it came before may be forgotten.
func TestManyAcquisitions(t *testing.T) {
	var tr order.Tracker
	a, b := tr.NewSequence(), tr.NewSequence()
	var wrote, read []order.Point
	for range 1000 {
		wait := b.Next()
		wrote = append(wrote, a.Next())
		tr.Acquire(wait, a.Last())
		read = append(read, b.Next())
	}
	for i := range wrote {
		require.True(t, tr.Before(wrote[i], read[i]), i)
	}
	require.False(t, tr.Before(wrote[999], read[998]))
}

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
				tr.Access(&m, a, func(earlier order.Access, from, to uint64) {
					races += fmt.Sprintf("%v-%d at %d-%d ", earlier.By, i, from, to)
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
	report := func(_ order.Access, from, to uint64) { races += fmt.Sprintf("%d-%d ", from, to) }
	tr.Access(&m, order.Access{From: 0, To: 4, Kind: order.Read, At: a}, report)
	tr.Access(&m, order.Access{From: 2, To: 8, Kind: order.Write, At: a}, report)
	require.Empty(t, races)
	tr.Access(&m, order.Access{From: 0, To: 8, Kind: order.Read, At: b}, report)
	require.Equal(t, "2-8 ", races)
}

// Memory of very many parts is forgotten, not kept for ever.
func TestMemoryOfManyParts(t *testing.T) {
	var tr order.Tracker
	var m order.Memory
	s := tr.NewSequence()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	first := s.Next()
	tr.Access(&m, order.Access{To: 1, Kind: order.Write, At: first}, nil)
	for i := range uint64(1 << 20) {
		tr.Access(&m, order.Access{From: 2 * i, To: 2*i + 1, Kind: order.Write, At: s.Next()}, nil)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.True(t, slices.ContainsFunc(m.Writers(0, 1), func(p order.Point) bool { return tr.Before(first, p) }))
	require.Less(t, after.HeapAlloc, before.HeapAlloc+64<<20)
}

// Whatever bytes are accessed, each byte has the races that it would have alone.
func TestMemoryIsBytes(t *testing.T) {
	for seed := range uint64(300) {
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
			tr.Access(&whole, a, func(_ order.Access, from, to uint64) {
				for i := from; i < to; i++ {
					got[i]++
				}
			})
			for i := from; i < to; i++ {
				a.From, a.To = 0, 1
				tr.Access(&bytes[i], a, func(order.Access, uint64, uint64) { want[i]++ })
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
	none := func(order.Access, uint64, uint64) { t.Error("a race") }
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

func BenchmarkRecordAndWait(b *testing.B) {
	var tr order.Tracker
	first, second := tr.NewSequence(), tr.NewSequence()
	b.ReportAllocs()
	for b.Loop() {
		first.Next()
		second.Join(first.Last())
	}
}

func BenchmarkAccess(b *testing.B) {
	var tr order.Tracker
	var m order.Memory
	s := tr.NewSequence()
	b.ReportAllocs()
	for b.Loop() {
		tr.Access(&m, order.Access{To: 64, Kind: order.Write, At: s.Next()}, func(order.Access, uint64, uint64) {})
	}
}
