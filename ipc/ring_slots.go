package ipc

import (
	"context"
	"fmt"
	"io"

	"github.com/purecuda/cuda"
)

// take returns the number of the next batch and its slot. If there is no error the
// caller has the turn, and gives it back.
func (r *ring) take(ctx context.Context, op string) (n uint64, slot int, err error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, &cuda.Error{Op: op, Err: ctx.Err(), Detail: "another goroutine waits for a batch of ring " + r.name}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	slot = int(r.next % uint64(r.slots))
	switch {
	case r.closed:
		err = &cuda.Error{Op: op, Err: cuda.ErrClosed}
	case r.ended && r.next >= r.end:
		err = io.EOF
	case r.use[slot] != free:
		err = invalid(op, "batch %d of ring %s is still in use here, and all its slots are taken: send or release that first", r.next-uint64(r.slots), r.name)
	}
	if err != nil {
		r.giveTurn()
	}
	return r.next, slot, err
}

func (r *ring) giveTurn() { <-r.turn }

// taken is called, in turn, when the batch is with the user, unless the ring was closed
// meanwhile.
func (r *ring) taken(op string, slot int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return &cuda.Error{Op: op, Err: cuda.ErrClosed}
	}
	r.use[slot] = taken
	r.next++
	return nil
}

// give gives batch n back: it signals that on s.
func (r *ring) give(op string, s *cuda.Stream, n uint64) error {
	if err := r.fits(op, s); err != nil {
		return err
	}
	slot := int(n % uint64(r.slots))
	r.mu.Lock()
	var err error
	switch {
	case r.closed:
		err = &cuda.Error{Op: op, Err: cuda.ErrClosed}
	case r.use[slot] != taken || n+uint64(r.slots) < r.next:
		err = invalid(op, "batch %d of ring %s was given back before", n, r.name)
	default:
		r.use[slot] = giving
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	err = renamed(op, r.gate.signal(s, slot, n/uint64(r.slots)+1))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.use[slot] = free
	switch {
	case err != nil: // it can be tried again
		r.use[slot] = taken
	case r.closed && n >= r.last:
		err = &cuda.Error{Op: op, Err: cuda.ErrClosed, Detail: fmt.Sprintf("batch %d of ring %s came too late", n, r.name)}
	}
	return err
}

// given returns how many batches were given back without a gap. The caller holds mu.
func (r *ring) given() uint64 {
	n := r.next - min(r.next, uint64(r.slots))
	for n < r.next && r.use[n%uint64(r.slots)] == free {
		n++
	}
	return n
}

// endsAt notes that there are no batches from number n on.
func (r *ring) endsAt(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end, r.ended = n, true
}

// beyondEnd reports whether there is no batch n.
func (r *ring) beyondEnd(n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended && n >= r.end
}

// possible returns how many batches there can be by now: besides those that were taken
// here, two rounds, since the host may be ahead of the device by one.
func (r *ring) possible() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next + 2*uint64(r.slots)
}

func (r *ring) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// close ends the taking of batches, and returns how many were given back before the first
// that was not; false if it was done before. If some after that were given back, they are
// lost, and that is the error.
func (r *ring) close(op string) (n uint64, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, false, nil
	}
	r.closed, r.last = true, r.given()
	r.halted(&cuda.Error{Op: "ring", Err: cuda.ErrClosed})
	for i := r.last; i < r.next; i++ {
		if r.use[i%uint64(r.slots)] == free {
			err = invalid(op, "batch %d of ring %s was not sent, so that batch %d, which was, is lost", r.last, r.name, i)
			break
		}
	}
	return r.last, true, err
}

// sent returns the last round of each slot that was given back.
func (r *ring) sent() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.rounds(r.next)
	for i, u := range r.use {
		if u != free {
			all[i]--
		}
	}
	return all
}

// rounds returns how often each slot was used when n batches were.
func (r *ring) rounds(n uint64) []uint64 {
	all := make([]uint64, r.slots)
	for i := range all {
		if n > uint64(i) {
			all[i] = (n-uint64(i)-1)/uint64(r.slots) + 1
		}
	}
	return all
}
