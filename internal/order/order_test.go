package order_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/order"
)

// racing returns whether q races with p, which wrote.
func racing(t *order.Tracker, p, q order.Point) bool {
	var m order.Memory
	races := 0
	report := func(order.Access, uint64, uint64) bool {
		races++
		return true
	}
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
	for seed := range uint64(100) {
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

func BenchmarkRecordAndWait(b *testing.B) {
	var tr order.Tracker
	first, second := tr.NewSequence(), tr.NewSequence()
	b.ReportAllocs()
	for b.Loop() {
		first.Next()
		second.Join(first.Last())
	}
}
