// Package order finds accesses to memory that nothing orders. It is told what comes after
// what on a device and on the host, and who accesses which bytes; it knows neither
// streams nor drivers.
//
// It looks at what orders operations and not at when they ran, so it finds a race in each
// run of a program, by vector clocks: every operation has a number in its sequence, and
// knows, for each sequence, up to which number everything came before it.
package order

import (
	"cmp"
	"slices"
)

// Tracker knows the order of operations. The zero value is ready. Goroutines must not share
// it without a lock.
type Tracker struct {
	sequences int         // how many there are
	retired   []*Sequence // those to be used again
	acquiring []*Sequence // those with acquisitions
	host      clock       // what the host has waited for
	versions  int         // how often host has changed
}

// clock says, for each sequence by its number, up to which of its operations everything came
// before. Clocks are shared and never change.
type clock []uint64

func (c clock) of(s *Sequence) uint64 {
	if s.number < len(c) {
		return c[s.number]
	}
	return 0
}

// reaches reports whether p, which is on a sequence, is in c.
func (c clock) reaches(p Point) bool { return p.sequence != nil && c.of(p.sequence) >= p.n }

// after returns the later, for each sequence, of c and of what comes before the points, they
// included; c itself if that is all in it.
func (c clock) after(points ...Point) clock {
	own := false // c may be changed
	longer := func(n int) {
		if !own || len(c) < n {
			more := make(clock, max(len(c), n))
			copy(more, c)
			c, own = more, true
		}
	}
	var last clock
	for _, p := range points {
		if c.reaches(p) {
			continue // and what p knows
		}
		if !same(p.known, last) {
			for i, n := range p.known {
				if i >= len(c) || c[i] < n {
					longer(len(p.known))
					c[i] = n
				}
			}
			last = p.known
		}
		if p.sequence != nil {
			longer(p.sequence.number + 1)
			c[p.sequence.number] = p.n
		}
	}
	return c
}

func same(c, d clock) bool { return len(c) == len(d) && (len(c) == 0 || &c[0] == &d[0]) }

// Point is a point in the order: an operation, or the end of what a sequence has so far. The
// zero value comes after nothing.
type Point struct {
	sequence *Sequence // nil: the point stands only for what it knows
	n        uint64
	known    clock
}

// reaches returns up to which operation of s everything came before p, p included.
func (p Point) reaches(s *Sequence) uint64 {
	if p.sequence == s {
		return p.n
	}
	return p.known.of(s)
}

// Merge returns a point that comes after all of points.
func Merge(points ...Point) Point { return Point{known: clock(nil).after(points...)} }

// Sequence is what comes one after the other: the operations of a stream.
type Sequence struct {
	tracker  *Tracker
	number   int
	n        uint64 // of operations
	known    clock  // what comes before the next operation, the sequence's own aside
	last     Point  // after all that is on the sequence
	versions int    // of the host's clock, up to that which known has
	acquired []acquisition
}

// acquisition says that the operations of a sequence from n on come after all that known
// says. It is noted later than those operations.
type acquisition struct {
	n     uint64
	known clock
}

// NewSequence returns a sequence without operations. What is put there comes after all that the
// host has waited for.
func (t *Tracker) NewSequence() *Sequence {
	for range min(len(t.retired), mostTried) {
		s := t.retired[0]
		t.retired = t.retired[1:]
		if t.host.of(s) >= s.n { // what comes later comes after all of it anyway
			s.known = t.host
			s.last = Point{known: s.known}
			return s
		}
		t.retired = append(t.retired, s)
	}
	s := &Sequence{tracker: t, number: t.sequences}
	t.sequences++
	return s
}

// Sequences returns how many sequences there have been at a time, as far as t knows.
func (t *Tracker) Sequences() int { return t.sequences }

// mostTried is how many retired sequences are looked at for one that can be used again.
const mostTried = 8

// Retire ends the use of s. Its points keep their meaning.
func (s *Sequence) Retire() { s.tracker.retired = append(s.tracker.retired, s) }

// Join makes what comes next on s come after the points.
func (s *Sequence) Join(points ...Point) {
	known := s.known.after(points...)
	if !same(known, s.known) {
		s.known = known
		s.last = Point{known: known.after(Point{sequence: s, n: s.n})}
	}
}

// Next puts an operation on s, which comes after all that the host has waited for until now.
func (s *Sequence) Next() Point {
	if s.versions != s.tracker.versions {
		s.versions = s.tracker.versions
		s.known = s.known.after(Point{known: s.tracker.host})
	}
	s.n++
	s.last = Point{s, s.n, s.known}
	return s.last
}

// Last returns the point that comes after all that is on s now.
func (s *Sequence) Last() Point { return s.last }

// HostWaited notes that the host has waited for p, or knows that it was reached: what is put
// anywhere from now on comes after it. All goroutines of all processes count as one host.
func (t *Tracker) HostWaited(p Point) {
	if t.host.reaches(p) {
		return
	}
	host := t.host.after(p, t.acquiredBefore(p))
	if !same(host, t.host) {
		t.host = host
		t.versions++
	}
}

// Waited reports whether the host knows that p was reached.
func (t *Tracker) Waited(p Point) bool { return t.host.reaches(p) }

// Acquire notes that at, which is on a sequence, came after what the host has waited for and
// after all of points: it waited for memory that they wrote. It may be called after others were
// put behind at, and after they have acquired something.
func (t *Tracker) Acquire(at Point, points ...Point) {
	s := at.sequence
	known := t.host.after(points...)
	for _, p := range points {
		known = known.after(t.acquiredBefore(p))
	}
	if len(s.acquired) == 0 {
		t.acquiring = append(t.acquiring, s)
	}
	i, found := slices.BinarySearchFunc(s.acquired, at.n, byNumber)
	if i > 0 {
		known = known.after(Point{known: s.acquired[i-1].known})
	}
	if !found {
		s.acquired = slices.Insert(s.acquired, i, acquisition{n: at.n})
	}
	for j := i; j < len(s.acquired); j++ {
		s.acquired[j].known = s.acquired[j].known.after(Point{known: known})
	}
	if len(s.acquired) > mostAcquired { // the older one says more than is true now: a race may be missed
		s.acquired[0].known = s.acquired[1].known
		s.acquired = slices.Delete(s.acquired, 1, 2)
	}
}

func byNumber(a acquisition, n uint64) int { return cmp.Compare(a.n, n) }

// mostAcquired is how many acquisitions a sequence keeps apart.
const mostAcquired = 256

// upTo returns what the operations of s up to n have acquired.
func (s *Sequence) upTo(n uint64) clock {
	i, found := slices.BinarySearchFunc(s.acquired, n, byNumber)
	if found {
		i++
	}
	if i == 0 {
		return nil
	}
	return s.acquired[i-1].known
}

// acquiredBefore returns a point after all that p, and what comes before it, have acquired.
func (t *Tracker) acquiredBefore(p Point) Point {
	var known clock
	for _, s := range t.acquiring {
		known = known.after(Point{known: s.upTo(p.reaches(s))})
	}
	return Point{known: known}
}

// Before reports whether q comes after p, which is an operation.
func (t *Tracker) Before(p, q Point) bool {
	if q.reaches(p.sequence) >= p.n {
		return true
	}
	for _, s := range t.acquiring {
		if s.upTo(q.reaches(s)).of(p.sequence) >= p.n {
			return true
		}
	}
	return false
}
