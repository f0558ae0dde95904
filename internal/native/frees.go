package native

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// frees are the pieces of memory of a device that are closed, and that streams still use. No
// stream waits for a free: an event is recorded behind the uses, and the memory is given
// back when that is done. The next allocation on the same home asks, and the poller when
// nobody allocates.
type frees struct {
	mu     sync.Mutex
	byHome map[*Stream]*homeFrees // nil: pinned memory
	n      atomic.Int64
}

// homeFrees are those with one home. They have a reaper of their own: the driver blocks it
// where the home's queue is full.
type homeFrees struct {
	list   list.List // of *pendingFree, the oldest first
	reaper reaper
}

// pendingFree is one of them.
type pendingFree struct {
	m       *Memory
	mu      sync.Mutex
	users   []*user // whose uses are not known to be done
	done    bool
	pending bool // another try is certain
	home    *homeFrees
	at      *list.Element // of the list there; nil if the memory was freed at once
	freed   chan struct{} // closed when it was freed
}

// free gives memory back if it can be at once, and otherwise when it can.
func (q *frees) free(f *pendingFree) error {
	if done, err := f.try(); done {
		return err
	}
	q.add(f)
	f.tryLater()
	return nil
}

func (q *frees) add(f *pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byHome == nil {
		q.byHome = map[*Stream]*homeFrees{}
	}
	if f.home = q.byHome[f.m.home]; f.home == nil {
		f.home = new(homeFrees)
		q.byHome[f.m.home] = f.home
	}
	f.freed = make(chan struct{})
	f.at = f.home.list.PushBack(f)
	q.n.Add(1)
}

// remove is called when the memory was freed.
func (q *frees) remove(f *pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.at == nil {
		return
	}
	f.home.list.Remove(f.at)
	q.n.Add(-1)
	if f.home.list.Len() == 0 {
		delete(q.byHome, f.m.home)
	}
	close(f.freed)
}

// retains reports whether memory is closed and waits to be freed.
func (q *frees) retains(at uint64) bool {
	return slices.ContainsFunc(q.all(), func(f *pendingFree) bool {
		return uint64(f.m.Addr) == at || f.m.host != nil && uint64(uintptr(f.m.host)) == at
	})
}

// some returns up to n of the oldest with a home.
func (q *frees) some(home *Stream, n int) (some []*pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.byHome[home]; h != nil {
		for e := h.list.Front(); e != nil && len(some) < n; e = e.Next() {
			some = append(some, e.Value.(*pendingFree))
		}
	}
	return some
}

// ask gives back what can be, of the n oldest with a home. An allocation asks for two of its
// own home; other homes are not its business: their queues may be full.
func (q *frees) ask(home *Stream, n int) {
	if q.n.Load() == 0 {
		return
	}
	for _, f := range q.some(home, n) {
		f.retry()
	}
}

// settle waits until the memory that is pending now was given back, for at most a second, as
// the device is out of memory. It reports whether some was. It frees nothing itself: the
// driver may hold that up for long.
func (q *frees) settle() (some bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, f := range q.all() {
		select {
		case <-f.freed:
		case <-ctx.Done():
		}
		select {
		case <-f.freed:
			some = true
		default:
		}
	}
	return some
}

// all returns all that are pending.
func (q *frees) all() (all []*pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.byHome {
		for e := h.list.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*pendingFree))
		}
	}
	return all
}

// retryAfter is when to try again where there is nothing to wait for: a stream is being
// captured, or the driver could not make an event, or one answers with an error.
const retryAfter = time.Millisecond

// retry gives the memory back if it can be by now, and otherwise sees to another try.
func (f *pendingFree) retry() {
	done, err := f.try()
	if done {
		f.m.Dev.Driver.closeFailed("buffer", err)
		return
	}
	f.tryLater()
}

// tryLater sees to another try.
func (f *pendingFree) tryLater() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done || f.pending {
		return
	}
	f.pending = true
	again := func() {
		f.mu.Lock()
		f.pending = false
		f.mu.Unlock()
		f.retry()
	}
	reaper := &f.home.reaper
	later := func() { time.AfterFunc(retryAfter, func() { reaper.add(again) }) }
	for _, u := range f.users {
		if m := u.mark; m != nil {
			m.state.Add(1)
			// Not here: the poller may call at once.
			reaper.add(func() {
				m.dev.Poller.Notify(m, nil, func(err error) {
					m.EndWait()
					if err != nil {
						later() // the event answers at once, with an error
						return
					}
					reaper.add(again)
				})
			})
			return
		}
	}
	later()
}

// try gives the memory back if its uses are done.
func (f *pendingFree) try() (done bool, err error) {
	if !f.ready() {
		return false, nil
	}
	err = f.m.giveBack() // without f.mu: it may call the user, see AfterFree
	f.m.Dev.frees.remove(f)
	if home := f.m.home; home != nil {
		home.leave()
		home.release()
	}
	return true, err
}

// ready records what is to be recorded, and asks once for each use. It reports whether all
// are done, to one caller only: that one is in a call on the home.
func (f *pendingFree) ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return false
	}
	left := f.users[:0]
	for _, u := range f.users {
		if done, _ := u.done(); done {
			u.release()
		} else {
			left = append(left, u)
		}
	}
	f.users = left
	if len(left) > 0 || f.m.home != nil && !f.m.home.enterHeld() {
		return false
	}
	f.done = true
	return true
}

// done reports whether the work of u is done, up to an event that is recorded behind it
// now, if there is none. A device that is lost, which err says, uses nothing any more.
func (u *user) done() (done bool, err error) {
	if u.mark == nil {
		err = u.record()
	}
	if u.mark != nil {
		done, err = u.mark.Poll()
	}
	if r, ok := err.(driver.Result); ok && (r == driver.ErrorDeinitialized || r.Sticky()) {
		return true, failed(ignoreExit(r))
	}
	if err != nil && u.s.kind != kindExternal {
		u.mark = nil // it says nothing, and nobody should get it: record another one later
	}
	return done && err == nil, err
}

// record records an event behind the uses of u. If it cannot now, as the stream is being
// captured or there is no event, there will be another try.
func (u *user) record() error {
	s := u.s
	if !s.enterHeld() {
		return nil
	}
	defer s.leave()
	m, err := s.markHere()
	if err == nil {
		u.mark = m
	}
	return err
}

// wait waits until the users are done, and gives the memory back. If there is nothing to wait
// for, because a stream is being captured, maybe by the caller, that is left to the frees.
func (f *pendingFree) wait() error {
	var lost error
	for len(f.users) > 0 {
		u := f.users[0]
		done, err := u.done()
		switch {
		case done:
			if lost == nil {
				lost = err
			}
			u.release()
			f.users = f.users[1:]
		case u.mark == nil || err != nil:
			return f.m.Dev.frees.free(f)
		default:
			_ = u.mark.dev.Poller.Wait(context.Background(), u.mark, nil, true) // done says why not
		}
	}
	if err := f.m.giveBack(); err != nil {
		return err
	}
	return lost
}
