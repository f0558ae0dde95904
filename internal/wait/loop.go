package wait

import (
	"runtime"
	"sync"
	"time"
)

// loop is a goroutine that polls, which runs only while somebody waits, and what it
// polls. The two loops of a poller share nothing, because a bubble's channels cannot be
// used outside of it.
type loop struct {
	poller  *Poller
	virtual bool // it sleeps by the poller's Sleep
	mu      sync.Mutex
	running bool
	entries map[Point]*entry
	queues  map[any]*queue
	list    []*queue  // these, and one for each point whose place is not known
	number  uint64    // of the last entry
	rounds  uint64    // of questions
	until   time.Time // when it will wake; zero while it is awake
	sleeper sleeper
}

const (
	// A queue that says yes is asked again before the others, but only so often, or
	// queues with waiters that always come back would keep the others from being asked.
	mostQuickRounds = 16

	// A question costs the device's driver some time, so a loop sleeps this much longer than
	// it takes to ask them all, up to longestPause.
	sleepPerCost = 4
)

// run polls until nobody waits.
func (l *loop) run() {
	var asked []question
	var again []*queue
	var cost time.Duration // of asking every queue
	var seen uint32
	quick, notified := 0, false
	for {
		l.mu.Lock()
		l.until = time.Time{}
		l.rounds++
		if len(l.list) == 0 {
			l.running = false
			l.poller.count.pollers.Add(-1)
			l.mu.Unlock()
			return
		}
		full := len(again) == 0 || quick == mostQuickRounds
		if full {
			quick = 0
			seen = l.sleeper.seen() // whoever parks from now on wakes it, if he must
			asked = l.allQuestions(asked)
		} else {
			quick++
			asked = questions(asked, again)
		}
		l.mu.Unlock()

		began := time.Now()
		for i := range asked {
			q := &asked[i]
			q.over, q.err = l.poller.poll(q.entry.point)
		}
		if full {
			cost = time.Since(began)
		}
		var over []*waiter
		over, again = l.settle(asked, again[:0])
		notify(over)
		notified = notified || len(over) > 0
		if len(again) > 0 {
			continue
		}
		if notified {
			notified = false
			runtime.Gosched() // waiters that were notified may be queued behind this goroutine
		}

		l.mu.Lock()
		if asked = l.allQuestions(asked); len(asked) == 0 { // some may have come or gone meanwhile
			l.mu.Unlock()
			continue
		}
		now := time.Now()
		limit := max(pause(now.Sub(youngest(asked))), min(longestPause, sleepPerCost*cost))
		l.until = now.Add(limit)
		l.mu.Unlock()
		if l.virtual {
			l.sleepVirtually(asked, limit)
		} else {
			l.sleeper.sleep(limit, seen)
		}
		l.poller.count.wakeups.Add(1)
	}
}

// sleepVirtually sleeps until one of what was asked may be over. Points whose place is not
// known may be recorded by others, of whom Sleep need not know.
func (l *loop) sleepVirtually(asked []question, limit time.Duration) {
	points := make([]Point, len(asked))
	placed := true
	for i, q := range asked {
		points[i] = q.entry.point
		placed = placed && q.queue.placed()
	}
	if placed {
		limit = 0
	}
	l.poller.Sleep(points, limit, l.sleeper.wakes)
}

// The work of a young wait may end any moment, and a delay counts for more. So the pause
// between questions grows with the age of the youngest wait: a sixteenth of it, more
// slowly as soon as that would be much, and never for long.
const (
	shortestPause = 20 * time.Microsecond
	mediumPause   = 120 * time.Microsecond
	longestPause  = time.Millisecond
)

func pause(age time.Duration) time.Duration {
	return min(max(shortestPause, min(age/16, mediumPause), age/1000), longestPause)
}

// youngest returns when the last of the waits began for which a question is asked.
func youngest(asked []question) (began time.Time) {
	for _, q := range asked {
		if began.Before(q.entry.began) {
			began = q.entry.began
		}
	}
	return began
}

// settle takes out the entries whose waits are over, and appends to again the queues that are to
// be asked at once.
func (l *loop) settle(asked []question, again []*queue) ([]*waiter, []*queue) {
	var over []*waiter
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range asked {
		k := &asked[i]
		q := k.queue
		if k.entry.queue == q { // else it was given up or moved meanwhile
			over = l.answered(k, over)
		}
		if n := len(again); q.root != nil && q.phase != resting && (n == 0 || again[n-1] != q) {
			again = append(again, q)
		}
	}
	l.poller.count.complete(len(over))
	return over, again
}

// The rest is called with the mutex held.

// answered takes note of an answer, and appends to over those whose waits it ends.
func (l *loop) answered(k *question, over []*waiter) []*waiter {
	e, q := k.entry, k.queue
	if !q.placed() {
		if k.over {
			over = l.completeEarly(e, k.err, over)
		}
		return over
	}
	if k.leads {
		q.advance(k.over, k.err)
	}
	if !k.over {
		return over
	}
	q.remove(e)
	over = l.complete(e, k.err, over)
	if k.err == nil { // an error need not concern others
		q.takeBefore(e.first).each(func(e *entry) { over = l.complete(e, nil, over) })
	}
	l.tidy(q)
	return over
}

// complete forgets e, which has left its queue, and appends its waiters to over.
func (l *loop) complete(e *entry, err error, over []*waiter) []*waiter {
	e.queue = nil
	delete(l.entries, e.point)
	for _, w := range e.waiters {
		w.entry, w.err = nil, err
		w.disown()
	}
	if over == nil {
		return e.waiters
	}
	return append(over, e.waiters...)
}

// completeEarly does so for the waiters that came before the question was asked: others
// may have recorded the point between that and the later ones.
func (l *loop) completeEarly(e *entry, err error, over []*waiter) []*waiter {
	for i := 0; i < len(e.waiters); {
		w := e.waiters[i]
		if w.since == l.rounds {
			i++
			continue
		}
		over = append(over, w)
		w.err = err
		l.remove(w)
	}
	return over
}

// add enters w among the waiters for pt.
func (l *loop) add(w *waiter, pt Point, began time.Time) *entry {
	e := l.entries[pt]
	if e == nil {
		if l.entries == nil {
			l.entries, l.queues = make(map[Point]*entry), make(map[any]*queue)
		}
		l.number++
		e = &entry{point: pt, number: l.number}
		l.entries[pt] = e
		l.enter(e)
	} else {
		l.place(e)
	}
	if e.began.Before(began) {
		e.began = began
	}
	w.loop, w.entry, w.at, w.since = l, e, len(e.waiters), l.rounds
	e.waiters = append(e.waiters, w)
	w.own()
	return e
}

// remove takes w out.
func (l *loop) remove(w *waiter) {
	e := w.entry
	n := len(e.waiters) - 1
	e.waiters[w.at] = e.waiters[n]
	e.waiters[w.at].at = w.at
	e.waiters[n] = nil
	e.waiters = e.waiters[:n]
	w.entry = nil
	w.disown()
	if n == 0 {
		l.leave(e)
		delete(l.entries, e.point)
	}
}

// enter puts e where it is asked.
func (l *loop) enter(e *entry) {
	var key any
	key, e.first, e.last = e.point.Place()
	e.first = min(e.first, e.last)
	q := l.queues[key]
	if q == nil {
		q = &queue{key: key, at: len(l.list)}
		l.list = append(l.list, q)
		if q.placed() {
			l.queues[key] = q
		}
	}
	e.queue = q
	q.insert(e)
}

// leave is the reverse of enter.
func (l *loop) leave(e *entry) {
	q := e.queue
	e.queue = nil
	q.remove(e)
	l.tidy(q)
}

// place moves e if its place has changed, and reports whether it had.
func (l *loop) place(e *entry) bool {
	key, first, last := e.point.Place()
	if key == e.queue.key && (key == nil || min(first, last) == e.first && last == e.last) {
		return false
	}
	l.leave(e)
	l.enter(e)
	return true
}

// tidy drops q if it is empty.
func (l *loop) tidy(q *queue) {
	if q.root != nil {
		return
	}
	if q.placed() {
		delete(l.queues, q.key)
	}
	n := len(l.list) - 1
	l.list[q.at] = l.list[n]
	l.list[q.at].at = q.at
	l.list[n] = nil
	l.list = l.list[:n]
}

// allQuestions returns the questions of all queues, in the room of list.
func (l *loop) allQuestions(list []question) []question {
	for i := 0; i < len(l.list); {
		if q := l.list[i]; q.placed() || !l.place(q.root) { // else another is there now
			i++
		}
	}
	return questions(list, l.list)
}

// hasOlder reports whether a point is parked that must be done before pt.
func (l *loop) hasOlder(pt Point) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queues) == 0 {
		return false
	}
	key, first, _ := pt.Place()
	q := l.queues[key]
	return q != nil && q.older(first)
}

// start runs the loop unless it runs.
func (l *loop) start() {
	if l.running {
		return
	}
	l.running = true
	l.poller.count.pollers.Add(1)
	l.sleeper.start(l.virtual)
	go l.run()
}

// wakeFor wakes the loop if a wait for e that began then has it ask earlier.
func (l *loop) wakeFor(e *entry, began time.Time) {
	switch {
	case e.queue.older(e.first): // e is not asked before that is done
	case l.until.IsZero(), l.virtual, time.Until(l.until) > pause(time.Since(began)):
		l.wake()
	}
}

// removed wakes the loop after waiters were taken out, so that it ends if there are no
// others. In a bubble it may sleep until what they waited for is done.
func (l *loop) removed() {
	if len(l.list) == 0 || l.virtual {
		l.wake()
	}
}

func (l *loop) wake() {
	l.sleeper.wake(!l.until.IsZero())
	l.until = time.Time{} // the next ones need not wake it again
}
