package refs

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Gate counts the calls on a stream, and numbers the records among them, in one word.
// What is rare is a flag in that word, which a call sees in the same step in which it
// enters. The zero value is open. All methods may be called from any goroutine.
//
//	bit  63       the numbers are used up, see Renumber
//	bits 24 to 62 how many records were begun
//	bits 20 to 23 the flags
//	bits 0 to 19  calls under way
//
// A call that finds a flag leaves again, or does what the flag asks for. The goroutine
// to which a method reports that the gate is drained destroys the stream: that is, once,
// when it is closed, not diverted, and no call is under way.
type Gate struct{ word atomic.Uint64 }

// Word is the state of a gate when a call entered it.
type Word uint64

const (
	calls    = 1<<20 - 1
	shut     = 1 << 20 // closed by the owner
	halted   = 1 << 21 // see Halt
	diverted = 1 << 22 // see Divert
	drained  = 1 << 23
	full     = 1 << 63
	flags    = shut | halted | diverted | full

	numberShift = 24
	aRecord     = 1 << numberShift

	// NumberBits is how many bits the number of a record has.
	NumberBits = 63 - numberShift
	numbers    = 1<<NumberBits - 1
)

// Enter counts a call, which leaves in any case.
func (g *Gate) Enter() Word { return Word(g.word.Add(1)) }

// EnterRecord is Enter for a call that records: it draws the record's number.
func (g *Gate) EnterRecord() Word { return Word(g.word.Add(1 + aRecord)) }

// Leave ends a call. drained: the caller destroys the stream.
func (g *Gate) Leave() (drained bool) {
	w := g.word.Add(^uint64(0))
	return w&(shut|calls) == shut && g.drain()
}

func (g *Gate) drain() bool {
	w := g.word.Load()
	return w&(shut|halted|diverted|drained|calls) == shut && g.word.CompareAndSwap(w, w|drained)
}

// Close closes the gate for its owner; first is false if that was done before. drained:
// the caller destroys the stream.
func (g *Gate) Close() (first, drained bool) {
	first = g.word.Or(shut)&shut == 0
	return first, first && g.drain()
}

// Closed reports whether the owner has closed the gate.
func (g *Gate) Closed() bool { return g.word.Load()&shut != 0 }

// Quiet reports whether no call but own ones is under way.
func (g *Gate) Quiet(own uint64) bool { return g.word.Load()&calls <= own }

// Number returns how many records were begun.
func (g *Gate) Number() uint64 {
	w := Word(g.word.Load())
	if w.Full() { // what is under way comes after all numbers
		return numbers
	}
	return w.Number()
}

// Begin has the numbers of a gate that nobody uses yet begin after n.
func (g *Gate) Begin(n uint64) { g.word.Store(n << numberShift) }

// Clear reports whether the call found no flag.
func (w Word) Clear() bool { return w&flags == 0 }

// Closed reports whether the call found the gate closed.
func (w Word) Closed() bool { return w&shut != 0 }

// Halted reports whether the call must leave, and try again after Wait.
func (w Word) Halted() bool { return w&halted != 0 }

// Diverted reports whether the call found the gate diverted.
func (w Word) Diverted() bool { return w&diverted != 0 }

// Full reports whether the call must leave, and have the stream renumbered.
func (w Word) Full() bool { return w&full != 0 }

// Alone reports whether no other call was under way.
func (w Word) Alone() bool { return w&calls == 1 }

// Number is that of a record which entered with EnterRecord.
func (w Word) Number() uint64 { return uint64(w) >> numberShift & numbers }

// Halt returns when no call is under way, and none begins until Resume; others that halt
// wait for that too. Nobody halts a gate, or waits for a halt to end, while in a call on
// any gate: two could wait for each other.
func (g *Gate) Halt() {
	for b := (Backoff{}); g.word.Or(halted)&halted != 0; {
		b.Wait()
	}
	for b := (Backoff{}); g.word.Load()&calls != 0; {
		b.Wait()
	}
}

// Resume ends a halt. drained: the caller destroys the stream.
func (g *Gate) Resume() (drained bool) {
	g.word.And(^uint64(halted))
	return g.drain()
}

// Wait returns when the gate is not halted.
func (g *Gate) Wait() {
	for b := (Backoff{}); g.word.Load()&halted != 0; {
		b.Wait()
	}
}

// Divert sets a flag that every later call sees, until Restore. The caller has halted the
// gate, so that no call is under way which has not.
func (g *Gate) Divert() { g.word.Or(diverted) }

// Restore is the reverse of Divert; the gate need not be halted. drained: the caller
// destroys the stream.
func (g *Gate) Restore() (drained bool) {
	g.word.And(^uint64(diverted))
	return g.drain()
}

// Diverted reports whether the gate is diverted.
func (g *Gate) Diverted() bool { return g.word.Load()&diverted != 0 }

// Renumber has the numbers begin anew, if they are used up. The caller has halted the gate.
func (g *Gate) Renumber() bool { return g.word.And(aRecord-1)&full != 0 }

// Backoff waits a little, and longer each time. A halt is short unless the driver holds up
// a call; sleeping, and not a mutex, lets time pass in a testing/synctest bubble.
type Backoff struct{ n int }

// Wait waits once.
func (b *Backoff) Wait() {
	if b.n++; b.n < 100 {
		runtime.Gosched()
		return
	}
	time.Sleep(min(time.Duration(b.n)*time.Microsecond, time.Millisecond))
}
