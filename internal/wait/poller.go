// Package wait lets any number of goroutines wait on the host for points of a device's
// work. One goroutine asks for all of them, however many there are.
package wait

import (
	"sync/atomic"
	"time"
)

// Point is something that becomes done once: a record on a stream. Points that are equal
// are one; a Point must be comparable (a pointer).
type Point interface {
	// Poll asks once whether the point is done; it does not block for long. done is
	// true, or err is not nil, when it is over.
	Poll() (done bool, err error)
	// Place returns the point's place among those of queue, which is comparable (a
	// pointer): a point whose last is less than another's first comes before it, so if
	// the other is done it is done. queue nil: not known; such a point may also be
	// recorded again by others, so it is polled by itself and an answer counts only for
	// waiters that were parked before the poll began.
	//
	// It is called with a mutex held, so it must return at once. That a place becomes
	// known is noticed; see [Poller.Moved] for other changes.
	Place() (queue any, first, last uint64)
}

// Poller polls the points of a device for all goroutines that wait for them. The zero value is ready. Only
// one bubble of testing/synctest may use it at a time, though others outside of it may too.
type Poller struct {
	// Sleep, unless nil, is how to wait where time may be virtual (testing/synctest): it
	// returns as soon as a Poll of one of points may answer differently (at once if one
	// is done already), when it receives from wake, or after limit if that is positive.
	// It may return early.
	Sleep func(points []Point, limit time.Duration, wake <-chan struct{})

	loops [2]loop // for waits outside and inside of a bubble of testing/synctest
	fast  atomic.Bool
	count counters
}

// Wake has all points polled again now. Waits in a bubble are meant only if the caller is
// in it.
func (p *Poller) Wake() {
	loops := p.loops[:1]
	if inBubble(time.Now()) {
		loops = p.loops[:]
	}
	for i := range loops {
		l := &loops[i]
		l.mu.Lock()
		if l.running {
			l.wake()
		}
		l.mu.Unlock()
	}
}

// Moved says that Place of pt answers differently now. It must be called when a point
// that had a place loses it, because others may record it from now on.
func (p *Poller) Moved(pt Point) {
	for i := range p.loops {
		l := &p.loops[i]
		l.mu.Lock()
		if e := l.entries[pt]; e != nil && l.place(e) {
			l.wake()
		}
		l.mu.Unlock()
	}
}

// poll asks about pt. over says that there is nothing more to wait for.
func (p *Poller) poll(pt Point) (over bool, err error) {
	p.count.queries.Add(1)
	done, err := pt.Poll()
	return done || err != nil, err
}

// virtual reports whether t is virtual time, which passes only in Sleep. Where there is no
// Sleep, a machine's clock may just be wrong.
func (p *Poller) virtual(t time.Time) bool { return p.Sleep != nil && inBubble(t) }

// inBubble reports whether t was read in a bubble of testing/synctest, where time begins
// with the year 2000 and stands still while a goroutine runs.
func inBubble(t time.Time) bool { return t.Unix() < 1388534400 } // 2014

// loopAt returns the loop for a wait that begins at t.
func (p *Poller) loopAt(t time.Time) *loop {
	if inBubble(t) {
		return &p.loops[1]
	}
	return &p.loops[0]
}
