package cuda

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Waitable is what the host can wait for: an [*Event], a [*Stream] or a [*Device].
type Waitable interface {
	Synchronize() error
	SynchronizeContext(ctx context.Context) error
	Done() <-chan error

	begin(op string) (pending, error)
}

// pending is a wait on the host that has begun. What it is for is settled: later
// records and later work do not matter to it.
type pending struct {
	event *handle // nil if there is nothing to wait for
	owner *handle // closing it ends the wait: the event itself, or the stream
	keep  any     // must not be collected meanwhile

	effects uint64 // of a stream: those when the wait began
}

// end is called once when the wait is over.
func (p *pending) end() {
	if p.event == nil {
		return
	}
	p.owner.waited()
	if p.event.kind == kindMilestone {
		p.event.dev.milestones.put(p.event)
	}
	runtime.KeepAlive(p.keep)
}

// waited takes back what a wait has added to waits. The caller may not have to wait
// for the driver, which may hold up whoever destroys something.
func (h *handle) waited() {
	if h.lastWaited() {
		h.dev.chores.add(h.closeUnneeded)
	}
}

// lastWaited takes one off waits. It reports whether h has no use any more.
func (h *handle) lastWaited() bool { return h.waits.Add(-1) == 0 && h.replaced.Load() }

func (h *handle) closeUnneeded() {
	if r := h.close(); r != driver.Success {
		h.cleanupFailed(r)
	}
}

// done returns a channel that tells of the end of a wait for w.
func done(w Waitable, op string) <-chan error {
	done := make(chan error, 1)
	p, err := w.begin(op)
	if p.event == nil {
		done <- err
		return done
	}
	if takeSeat() {
		over, err := p.ask(op)
		leaveSeat()
		if over {
			p.end()
			done <- err
			return done
		}
	}
	p.event.dev.watcher.add(&waiter{pending: p, done: done, op: op}, time.Now())
	return done
}

// wait asks in a loop while that is likely to pay, and then leaves it to a watcher.
func (p *pending) wait(ctx context.Context, op string) (err error) {
	if ctx == nil {
		return nilContext(op)
	}
	d := p.event.dev.driver
	over := false
	began := time.Now()
	switch {
	case takeSeat():
		queries := uint64(0)
		d.relaxed(func() driver.Result {
			spin(ctx, began, p.mayBeShort, func() bool {
				queries++
				over, err = p.event.poll(op)
				return over
			})
			return driver.Success
		})
		leaveSeat()
		d.waits.queries.Add(queries)
	case ctx.Err() != nil:
		over, err = p.askAnyway(op) // what is done is done
	}
	if over {
		return err
	}
	if ctx.Err() == nil {
		w := &waiter{pending: pending{event: p.event, owner: p.owner}, told: make(chan outcome, 1)}
		watcher := p.event.dev.watcher
		watcher.add(w, began)
		if ctx.Done() == nil { // a receive wakes faster than a select
			return named((<-w.told).err, op)
		}
		select {
		case o := <-w.told:
			return named(o.err, op)
		case <-ctx.Done():
		}
		if !watcher.remove(w) {
			return named((<-w.told).err, op)
		}
	}
	d.waits.cancelled.Add(1)
	return gaveUp(ctx, op)
}

// named returns err, which was met on behalf of several callers, with one's own
// operation.
func named(err error, op string) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	mine := *e
	mine.Op = op
	return &mine
}

// await waits for an event of the library's own, which nobody closes.
func (h *handle) await(ctx context.Context, op string) error {
	h.waits.Add(1)
	p := pending{event: h, owner: h}
	defer p.end()
	return p.wait(ctx, op)
}

func nilContext(op string) error { return invalid(op, "the context is nil: use context.Background()") }

func gaveUp(ctx context.Context, op string) error {
	return &Error{Op: op, Err: ctx.Err(), Detail: "the work on the device goes on"}
}

// A wait asks the driver in a loop for patience, because work is often short and
// nothing else notices its end as early.
const (
	patience = 300 * time.Microsecond
	glances  = 8 // questions between two looks at the clock

	firstGlances = 3 // questions before anything else is done

	maxAsking = 8
)

// Only some waits of the process ask the driver by themselves at the same time: the
// driver does one thing at a time anyway, and who stands in line there, or in line
// for a lock while its capture mode is relaxed, keeps a thread from others. And of
// those only some ask in a loop, so that half of the processors are left to others.
var (
	seats       atomic.Int32
	maxSpinning = int32(max(1, min(4, runtime.GOMAXPROCS(0)/2)))
)

// takeSeat reports whether the caller may ask. If so, it must leave the seat.
func takeSeat() bool {
	if seats.Add(1) <= maxAsking {
		return true
	}
	seats.Add(-1)
	return false
}

func leaveSeat() { seats.Add(-1) }

// mayBeShort reports whether asking in a loop may pay. It does not if others wait
// for something older on the stream.
func (p *pending) mayBeShort() bool {
	return !p.event.blocking && !p.event.dev.watcher.watchesOlder(p.event.covers.place())
}

// spin calls ask, once or in a loop, until it says that a wait is over or the wait
// is better left to a watcher.
func spin(ctx context.Context, began time.Time, worth func() bool, ask func() bool) {
	if ask() || virtual(began) || seats.Load() > maxSpinning || !worth() {
		return
	}
	for n := 1; !ask(); n++ {
		if n%glances == 0 && (ctx.Err() != nil || time.Since(began) > patience) {
			return
		}
	}
}

// virtual reports whether t was read in a testing/synctest bubble, whose clock
// begins with the year 2000 and stands still while anything runs.
func virtual(t time.Time) bool { return t.Year() < 2014 }

// ask asks once whether the wait is over.
func (p *pending) ask(op string) (over bool, err error) {
	d := p.event.dev.driver
	d.relaxed(func() driver.Result {
		over, err = p.event.poll(op)
		return driver.Success
	})
	d.waits.queries.Add(1)
	return over, err
}

// askAnyway is ask for who has no seat and cannot wait. If others stand in line it
// does not ask.
func (p *pending) askAnyway(op string) (over bool, err error) {
	line := &p.event.dev.line
	if !line.TryLock() {
		return false, nil
	}
	defer line.Unlock()
	return p.ask(op)
}

// poll asks once whether a wait for the event of h is over. The calling thread's
// capture mode is relaxed.
func (h *handle) poll(op string) (over bool, err error) {
	if h.round != nil {
		return h.round.poll(op)
	}
	if !h.borrow() {
		return true, closed(op, "")
	}
	over, err = h.pollBorrowed(op)
	if !h.pooled {
		h.releaseElsewhere()
	}
	return over, err
}

// lockOut keeps captures from having the event. It reports whether they must be let in
// again. What is waited for does not become part of a capture but through others who know
// it; so only with those it waits for whoever has the lock, whom the driver may hold up.
func (h *handle) lockOut() bool {
	beginning := &h.dev.driver.captures.beginning
	if beginning.TryRLock() {
		return true
	}
	if h.covers.void.Load() {
		beginning.RLock()
		return true
	}
	return false
}

// pollBorrowed is poll for an event that is borrowed.
func (h *handle) pollBorrowed(op string) (over bool, err error) {
	if h.pooled && h.lockOut() { // others are part of no capture
		defer h.dev.driver.captures.beginning.RUnlock()
		if h.covers.recording() && h.dev.driver.captures.active.Load() != 0 { // perhaps in a capture that has just begun
			return false, nil
		}
		if err := h.notCaptured(op); err != nil { // since the wait began
			return true, err
		}
	}
	gone := h.orphaned() // asked first: what was done before it died counts
	done, err := h.answered(op, h.queryEvent(), gone)
	if h.overtaken() {
		return true, closed(op, "")
	}
	return done || err != nil, err
}
