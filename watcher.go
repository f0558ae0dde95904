package cuda

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/purecuda/cuda/driver"
)

// watcher asks the driver on behalf of all who wait for the work of a device. It is
// one goroutine, on a thread of its own while it sleeps, and runs only while
// somebody waits. Of each stream it asks for as little as it can: see
// [queue.questions].
type watcher struct {
	driver *Driver

	mu       sync.Mutex
	running  bool
	virtual  bool       // it runs in a testing/synctest bubble
	queues   []*queue   // of the streams whose records are waited for
	unplaced []*watched // those whose place in a stream is not known
	asked    uint64     // how often it has asked
	until    time.Time  // when it will wake; zero while it is awake
	alarm    alarm
}

// maxWatchers is how many watchers a driver has at most; more devices share them.
const maxWatchers = 8

// run asks until nobody waits any more.
func (x *watcher) run() {
	var asked []*watched
	var answers []answer
	var cost time.Duration // of asking for everything
	more, told := false, false
	for {
		x.mu.Lock()
		x.until = time.Time{}
		x.asked++
		rung := x.alarm.rung()
		asked = x.questions(asked[:0], more)
		if len(asked) == 0 && !more {
			x.running = false
			x.driver.waits.watchers.Add(-1)
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()

		began := time.Now()
		answers = x.ask(asked, answers[:0])
		if !more {
			cost = time.Since(began)
		}
		if more = x.settle(asked, answers); more {
			told = true
			continue
		}
		if told {
			told = false
			runtime.Gosched() // those who were told may stand in line behind this goroutine
		}

		x.mu.Lock()
		if asked = x.questions(asked[:0], false); len(asked) == 0 { // others may have come or gone meanwhile
			x.mu.Unlock()
			continue
		}
		now := time.Now()
		nap := max(pause(now.Sub(youngest(asked))), min(longestPause, 4*cost))
		x.until = now.Add(nap)
		x.mu.Unlock()
		if sleep := x.driver.api.Sleep; x.alarm.timer && sleep != nil {
			sleep(natives(asked, &nap), nap, x.alarm.bell)
		} else {
			x.alarm.sleep(nap, rung)
		}
		x.driver.waits.wakeups.Add(1)
	}
}

// natives returns the events of what was asked. If they are all, whoever knows
// when they are done can sleep without a limit.
func natives(asked []*watched, limit *time.Duration) []driver.Event {
	events := make([]driver.Event, 0, len(asked))
	for _, r := range asked {
		if r.event.round == nil {
			events = append(events, driver.Event(r.event.native))
		}
	}
	if len(events) == len(asked) {
		*limit = 0
	}
	return events
}

// answer is what the driver said about a record.
type answer struct {
	over bool
	err  error
}

// ask asks the driver, without disturbing anybody's capture.
func (x *watcher) ask(asked []*watched, answers []answer) []answer {
	x.driver.relaxed(func() driver.Result {
		for _, r := range asked {
			var a answer
			a.over, a.err = r.event.poll("")
			answers = append(answers, a)
		}
		return driver.Success
	})
	x.driver.waits.queries.Add(uint64(len(asked)))
	return answers
}

// settle tells those whose waits are over. It reports whether there is more to ask
// at once.
func (x *watcher) settle(asked []*watched, answers []answer) (more bool) {
	var verdicts []verdict
	x.mu.Lock()
	for i, a := range answers {
		r := asked[i]
		switch q := r.queue; {
		case r.over():
		case q != nil:
			more = more || a.over || q.step > 0
			verdicts = append(verdicts, q.answered(r, a)...)
			x.tidy(q)
		case a.over:
			more = true
			verdicts = append(verdicts, verdict{[]*watched{x.early(r)}, a.err})
		}
	}
	x.mu.Unlock()
	if len(verdicts) > tellHere {
		go tell(x.driver, verdicts) // and go on asking meanwhile
	} else {
		tell(x.driver, verdicts)
	}
	return more
}

// early takes off r, a record without a place, those whose waits began before the
// question was asked. Others may have recorded the event since, and the answer says nothing
// to those who came later.
func (x *watcher) early(r *watched) *watched {
	early := &watched{}
	for _, w := range slices.Clone(r.waiters) {
		if w.since < x.asked {
			early.waiters = append(early.waiters, w)
			x.drop(w)
		}
	}
	return early
}

// The work of a young wait may end any moment, and a delay counts for more. So the
// pause between questions grows with the age of the youngest wait: a sixteenth of
// it, more slowly as soon as that would be much, and never for long.
const (
	shortestPause = 20 * time.Microsecond
	mediumPause   = 120 * time.Microsecond
	longestPause  = time.Millisecond
)

func pause(age time.Duration) time.Duration {
	return min(max(shortestPause, min(age/16, mediumPause), age/1000), longestPause)
}

// youngest returns when the last of the waits that need be asked for began.
func youngest(asked []*watched) (began time.Time) {
	for _, r := range asked {
		if began.Before(r.since) {
			began = r.since
		}
	}
	return began
}

// add has w told when what it waits for is over. began is when it began to wait.
func (x *watcher) add(w *waiter, began time.Time) {
	x.driver.waits.parked.Add(1)
	x.driver.waits.waiting.Add(1)
	x.mu.Lock()
	r := w.event.watched
	if r == nil || r.over() {
		r = &w.record
		r.event, r.waiters = w.event, w.room[:0]
		w.event.watched = r
		x.enter(r)
	}
	w.on, w.at, w.since = r, len(r.waiters), x.asked
	r.waiters = append(r.waiters, w)
	if r.since.Before(began) {
		r.since = began
	}
	switch {
	case w.owner.closed():
		x.drop(w)
		x.mu.Unlock()
		x.end(closed("", ""), w)
		return
	case x.running && x.virtual != virtual(began):
		x.drop(w)
		x.mu.Unlock()
		x.end(invalid("", "waits in a testing/synctest bubble and outside of it at the same time: give the bubble a driver of its own"), w)
		return
	case !x.running:
		x.running, x.virtual = true, virtual(began)
		x.alarm.start(x.virtual)
		x.driver.waits.watchers.Add(1)
		go x.run()
	case r.queue != nil && r.queue.records[0] != r: // another must be over first
	case x.until.IsZero():
		x.alarm.ring(false) // it is awake, but may have looked before w came
	case x.alarm.timer || time.Until(x.until) > pause(time.Since(began)):
		x.alarm.ring(true)
	}
	x.mu.Unlock()
}

// watchesOlder reports whether a record is waited for that must be over before the
// one at p is.
func (x *watcher) watchesOlder(p place) bool {
	if p.stream == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	q := p.stream.queue
	return q != nil && !before(p.first, q.records[0].last)
}

// remove gives w up; false if it was told.
func (x *watcher) remove(w *waiter) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w.on == nil || w.on.over() {
		return false
	}
	x.drop(w)
	x.driver.waits.waiting.Add(-1)
	return true
}

// closing tells those whose waits end because h was closed.
func (x *watcher) closing(h *handle) {
	var ended []*waiter
	collect := func(records ...*watched) {
		for _, r := range records {
			for _, w := range r.waiters {
				if w.owner == h {
					ended = append(ended, w)
				}
			}
		}
	}
	x.mu.Lock()
	if r := h.watched; r != nil {
		if !r.over() {
			collect(r)
		}
	} else { // a stream
		if h.queue != nil {
			collect(h.queue.records...)
		}
		collect(x.unplaced...)
	}
	for _, w := range ended {
		x.drop(w)
	}
	x.mu.Unlock()
	x.end(closed("", ""), ended...)
}

// end tells those who were taken off their records.
func (x *watcher) end(err error, waiters ...*waiter) {
	x.driver.waits.waiting.Add(-int64(len(waiters)))
	x.driver.waits.woken.Add(uint64(len(waiters)))
	for _, w := range waiters {
		w.tell(err)
	}
}

// displace has the record of h asked for by itself from now on, because others may
// record it.
func (x *watcher) displace(h *handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := h.watched; r != nil && !r.over() && r.queue != nil {
		x.leave(r)
		x.enter(r)
	}
}

// The rest is called with the mutex held.

// drop takes w off its record.
func (x *watcher) drop(w *waiter) {
	r := w.on
	last := r.waiters[len(r.waiters)-1]
	r.waiters[w.at], last.at = last, w.at
	r.waiters = slices.Delete(r.waiters, len(r.waiters)-1, len(r.waiters))
	w.on = nil
	if len(r.waiters) == 0 {
		x.forget(r)
	}
}

// forget takes a record that nobody waits for any more off the books.
func (x *watcher) forget(r *watched) {
	x.leave(r)
	r.dropped = true
	r.event.watched = nil
}

// enter puts r where it is asked for.
func (x *watcher) enter(r *watched) {
	r.place, r.queue = r.event.covers.place(), nil
	if r.stream == nil || r.stream.queue != nil && r.stream.queue.settled(r.last) {
		r.at = len(x.unplaced)
		x.unplaced = append(x.unplaced, r)
		return
	}
	q := r.stream.queue
	if q == nil {
		q = &queue{at: len(x.queues), stream: r.stream}
		r.stream.queue = q
		x.queues = append(x.queues, q)
	}
	r.queue = q
	q.insert(r)
}

// leave is the reverse of enter.
func (x *watcher) leave(r *watched) {
	if x.alarm.timer { // it may sleep until r is done
		x.alarm.ring(true)
	}
	if r.queue != nil {
		r.queue.remove(r)
		x.tidy(r.queue)
		return
	}
	last := x.unplaced[len(x.unplaced)-1]
	x.unplaced[r.at], last.at = last, r.at
	x.unplaced = slices.Delete(x.unplaced, len(x.unplaced)-1, len(x.unplaced))
	x.endIfIdle()
}

// tidy drops q if it is empty.
func (x *watcher) tidy(q *queue) {
	if len(q.records) > 0 || q.stream.queue != q {
		return
	}
	q.stream.queue = nil
	last := x.queues[len(x.queues)-1]
	x.queues[q.at], last.at = last, q.at
	x.queues = slices.Delete(x.queues, len(x.queues)-1, len(x.queues))
	x.endIfIdle()
}

// endIfIdle wakes the watcher if nobody waits any more.
func (x *watcher) endIfIdle() {
	if len(x.queues) == 0 && len(x.unplaced) == 0 {
		x.alarm.ring(!x.until.IsZero())
	}
}

// questions appends to list the records that must be asked; with more only those of
// streams that have just said yes.
func (x *watcher) questions(list []*watched, more bool) []*watched {
	for i := 0; i < len(x.unplaced); {
		r := x.unplaced[i]
		if p := r.event.covers.place(); p != r.place { // it was being recorded
			x.leave(r)
			x.enter(r)
			continue
		}
		if !more {
			list = append(list, r)
		}
		i++
	}
	for _, q := range x.queues {
		if !more || q.step > 0 || q.searching {
			list = q.questions(list)
		}
	}
	return list
}
