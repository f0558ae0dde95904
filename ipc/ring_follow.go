package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/purecuda/cuda"
)

// run follows the other end until the ring is abandoned. A consumer is told in the end
// how many batches there were.
func (r *ring) run(consumer bool) {
	gone := make(chan struct{})
	when := r.session.onGone
	if consumer {
		when = r.session.onDead
	}
	stop := when(sync.OnceFunc(func() { close(gone) }))
	dying := make(chan struct{})
	stopDying := r.session.onDying(sync.OnceFunc(func() { close(dying) }))
	go func() {
		defer stop()
		defer stopDying()
		f := follower{ring: r, consumer: consumer, otherIsDone: sync.OnceFunc(func() { close(r.peerDone) })}
		done := r.session.Done()
		heardAll := make(chan struct{})
		for {
			select {
			case m := <-r.heard:
				f.hear(m)
			case <-done: // what was said before counts
				done = nil
				go func() {
					r.session.drained(ringsChannel)
					close(heardAll)
				}()
			case <-heardAll:
				heardAll = nil
				for len(r.heard) > 0 {
					f.hear(<-r.heard)
				}
				f.over(r.session.Err())
			case <-dying: // what is queued on its device may still run for a moment
				dying = nil
				f.dead()
			case <-gone:
				gone = nil
				f.dead()
				r.gate.settle()
				f.otherIsDone()
			case <-r.over:
				return
			}
		}
	}()
}

// follower is what a ring makes of the other end's messages and of its end.
type follower struct {
	*ring
	consumer    bool
	otherIsDone func()
	end         []uint64 // the rounds that there were, when that is known
}

func (f *follower) hear(m ringMessage) {
	m.drop()
	switch {
	case m.End != nil && f.consumer && f.end == nil && *m.End > f.possible():
		f.lost(&cuda.Error{Op: "ring", Err: ErrProtocol, Detail: fmt.Sprintf("process %d says that %d batches went through ring %s", f.session.Peer().PID, *m.End, f.name)})
	case m.End != nil && f.consumer && f.end == nil:
		f.end = f.rounds(*m.End)
		f.endsAt(*m.End)
		go f.finish()
	case m.Closed:
		f.fail(&cuda.Error{Op: "ring", Err: ErrLeft, Detail: "the other end has closed ring " + f.name})
		f.gate.settle()
		f.otherIsDone()
	default:
		f.gate.hear(m)
	}
}

// finish waits until the batches that were sent have come; then none will come.
func (f *follower) finish() {
	if f.gate.flush(context.Background(), f.end) == nil {
		f.gate.fail(io.EOF)
	}
}

// over is called when the session is. That says nothing about the device: a producer that
// has said goodbye may still have work there that was sent, and a consumer may still use
// what it has. So the words of a living consumer are not touched: what waits for it would
// run, and overwrite that. It is only given no more.
func (f *follower) over(err error) {
	switch {
	case !f.consumer:
		f.halted(renamed("ring "+f.name, err))
	case f.end == nil || !errors.Is(err, ErrLeft):
		f.lost(err)
	}
}

// dead is called when the other end can do no harm any more, because it has released the
// memory or its process is dying.
func (f *follower) dead() {
	err := f.session.Err()
	if err == nil || f.end != nil {
		err = &cuda.Error{Op: "ring", Err: cuda.ErrPeerGone, Detail: fmt.Sprintf("process %d has died", f.session.Peer().PID)}
	}
	f.lost(err)
}

func (f *follower) lost(err error) {
	if f.end != nil && f.gate.complete(f.end) {
		err = io.EOF
	}
	f.fail(renamed("ring "+f.name, err))
}

func (f *follower) fail(err error) {
	if !f.consumer {
		f.halted(err)
	}
	f.gate.fail(err)
}
