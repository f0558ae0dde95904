package cuda

import (
	"errors"
	"slices"
	"sort"
	"time"
)

// waiter is one wait that was left to a watcher. The watcher's mutex guards it.
// What telling it needs stands together, in one line of the cache.
type waiter struct {
	told   chan outcome
	done   chan error // instead of told, for Done
	index  int        // which of several, for the outcome
	room   [1]*waiter // so that one waiter takes no slice of its own
	record watched    // for the first who waits for a record

	pending
	on    *watched // what it waits for; nil if it was taken off that
	at    int      // its index there
	since uint64   // how often the watcher had asked when it came
	op    string   // for done
}

// outcome is the end of a wait.
type outcome struct {
	index int
	err   error
}

// tell tells w how its wait has ended. Nobody else does.
func (w *waiter) tell(err error) {
	if w.done == nil {
		w.told <- outcome{w.index, err}
		return
	}
	w.end()
	w.keep = nil // the event may still refer to w
	w.done <- named(err, w.op)
}

// watched is an event's record for which some wait. The watcher's mutex guards it
// until it is over.
type watched struct {
	waiters []*waiter
	event   *handle
	queue   *queue // nil if it has no place
	place
	since   time.Time // when the last of them began to wait
	at      int       // its index among those without a place
	dropped bool
}

// over reports whether nobody waits for r, or all who did have been told or will be.
func (r *watched) over() bool { return r.dropped || r.queue != nil && r.queue.settled(r.last) }

// verdict is what became of some records.
type verdict struct {
	records []*watched
	err     error
}

// Telling takes a while, so more than tellHere are told by other goroutines, each of
// which tells tellThere.
const (
	tellHere  = 32
	tellThere = 256
)

func tell(d *Driver, verdicts []verdict) {
	for _, v := range verdicts {
		v.tell(d)
	}
}

// tell tells all who wait for the records.
func (v verdict) tell(d *Driver) {
	for len(v.records) > tellHere {
		n := min(tellThere, len(v.records))
		go verdict{v.records[:n], v.err}.tellEach(d)
		v.records = v.records[n:]
	}
	v.tellEach(d)
}

func (v verdict) tellEach(d *Driver) {
	n := 0
	for _, r := range v.records {
		n += len(r.waiters)
	}
	d.waits.waiting.Add(-int64(n))
	d.waits.woken.Add(uint64(n))
	for _, r := range v.records {
		for _, w := range r.waiters {
			w.tell(v.err)
		}
	}
	v.forget()
}

// forget lets go of what was told: an event may be there for long, and would keep the
// rest.
func (v verdict) forget() {
	if len(v.records) == 0 || v.records[0].event == nil { // that is a part of a record
		return
	}
	x := v.records[0].event.dev.watcher
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range v.records {
		r.waiters = nil
		if r.event.watched == r {
			r.event.watched = nil
		}
	}
}

// queue holds the records of one stream that are waited for, in the order in which
// they were over.
type queue struct {
	stream  *handle
	records []*watched
	done    uint64 // all records up to this number are done
	any     bool   // there are such
	step    int    // the index of the one to ask next: see [queue.questions]
	// searching: the last was not done, and it is not known which are.
	searching bool
	at        int // its index in the watcher
}

// settled reports whether the record with this number is known to be done.
func (q *queue) settled(last uint64) bool { return q.any && !before(q.done, last) }

// find returns the index of the first record that is not before number last.
func (q *queue) find(last uint64) int {
	return sort.Search(len(q.records), func(i int) bool { return !before(q.records[i].last, last) })
}

func (q *queue) insert(r *watched) {
	if n := len(q.records); n == 0 || before(q.records[n-1].last, r.last) {
		q.records = append(q.records, r) // most come in order
		return
	}
	q.records = slices.Insert(q.records, q.find(r.last), r)
}

func (q *queue) remove(r *watched) {
	i := q.find(r.last)
	if i == 0 {
		q.records[0] = nil
		q.records = q.records[1:]
		return
	}
	q.records = slices.Delete(q.records, i, i+1)
}

// questions appends to list what must be asked.
//
// That is the first record, and those that are not certainly later than it: they
// were under way at the same time. The others cannot be done before the first is.
//
// When the first was done, more may be, and a record that is done says so of all
// that are certainly before it. So after a yes the last is asked: often all are done
// at once, and otherwise that costs one question. If it is not done, and the first
// again is, then later ones are asked with steps that double while the answer is
// yes.
func (q *queue) questions(list []*watched) []*watched {
	if q.step > 0 {
		q.step = min(q.step, len(q.records)-1)
	}
	if q.step > 0 {
		return append(list, q.records[q.step])
	}
	end := q.records[0].last
	for _, r := range q.records {
		if !before(r.last, end+maxWidth) {
			break
		}
		if before(r.first, end) {
			list = append(list, r)
		}
	}
	return list
}

// answered takes note of the answer about r, and returns what it settles: r and the
// records before it for which that is certain. They have left the queue.
func (q *queue) answered(r *watched, a answer) []verdict {
	switch {
	case !a.over:
		q.searching = q.step > 0
		q.step = 0
		return nil
	case q.searching:
		q.step = 2*q.step + 1
	default:
		q.step = len(q.records) // the last
	}
	q.remove(r)
	r.dropped = true
	r.event.watched = nil
	verdicts := []verdict{{[]*watched{r}, a.err}}
	var e *Error
	if errors.As(a.err, &e) && !e.Code.Sticky() { // about r alone
		return verdicts
	}
	if n := q.find(r.first + 1); n > 0 {
		verdicts = append(verdicts, verdict{q.records[:n:n], a.err}) // in one step: there may be many
		q.records = q.records[n:]
		q.done, q.any = r.first, true
	}
	return verdicts
}
