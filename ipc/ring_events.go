package ipc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/purecuda/cuda"
)

// events is a gate for devices whose streams cannot wait for counters: an event for
// each slot and direction, and a message that it was recorded. The host waits for the
// other end's events before its stream goes on, because a stream that waits for an
// event of a process that dies would never run again.
type events struct {
	ring *ring
	out  []*cuda.Event
	in   []*cuda.Event

	mu      sync.Mutex
	rounds  []uint64      // those that the other end has said it recorded
	changed chan struct{} // closed when rounds or err change
	err     error
}

// ringEvent is an event of a slot.
type ringEvent struct {
	Slot  int   `json:"slot"`
	Token Token `json:"token"`
}

// ringSignal says that a slot's event was recorded.
type ringSignal struct {
	Slot  int    `json:"slot"`
	Round uint64 `json:"round"`
}

// newEvents exchanges events with the other end.
func newEvents(ctx context.Context, op string, r *ring, dev *cuda.Device) (_ *events, err error) {
	g := &events{
		ring:    r,
		in:      make([]*cuda.Event, r.slots),
		rounds:  make([]uint64, r.slots),
		changed: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for slot := range r.slots {
		e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: dev})
		g.out = append(g.out, e)
		t, err := ExportEvent(e)
		if err != nil {
			return nil, err
		}
		if err := r.say(ringMessage{Event: &ringEvent{slot, t}}); err != nil {
			return nil, err
		}
	}
	for range r.slots {
		m, err := r.greet(ctx, op)
		if err != nil {
			return nil, err
		}
		e := m.Event
		if e == nil || e.Slot < 0 || e.Slot >= r.slots || g.in[e.Slot] != nil {
			return nil, r.broken(op, "an event of each slot was to come")
		}
		if g.in[e.Slot], err = ImportEvent(dev.Driver(), e.Token, nil); err != nil {
			return nil, r.reason(ctx, op, err)
		}
	}
	return g, nil
}

// reason returns why the other end has failed, if it has and says so, rather than err,
// which may come of that.
func (r *ring) reason(ctx context.Context, op string, err error) error {
	ctx, cancel := context.WithTimeout(ctx, farewell/10)
	defer cancel()
	for {
		m, told := r.greet(ctx, op)
		switch {
		case errors.Is(told, ErrLeft):
			return told
		case told != nil:
			return err
		}
		m.drop()
	}
}

func (r *ring) broken(op, detail string) error {
	return &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: fmt.Sprintf("the other end of ring %s breaks the protocol: %s", r.name, detail)}
}

func (g *events) hear(m ringMessage) {
	s := m.Signal
	if s == nil || s.Slot < 0 || s.Slot >= len(g.rounds) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Round == g.rounds[s.Slot]+1 {
		g.rounds[s.Slot]++
		g.change()
	}
}

// change wakes those who wait for a change. The caller holds mu.
func (g *events) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// said waits until the other end has said that it recorded a round.
func (g *events) said(ctx context.Context, slot int, round uint64) error {
	for {
		g.mu.Lock()
		there, err, changed := g.rounds[slot] >= round, g.err, g.changed
		g.mu.Unlock()
		switch {
		case there:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &cuda.Error{Op: "ring", Err: ctx.Err()}
		}
	}
}

func (g *events) await(ctx context.Context, s *cuda.Stream, slot int, round uint64) error {
	if err := g.said(ctx, slot, round); err != nil {
		return err
	}
	return g.in[slot].WaitAlive(ctx, s)
}

func (g *events) signal(s *cuda.Stream, slot int, round uint64) error {
	if err := g.out[slot].Record(s); err != nil {
		return err
	}
	err := g.ring.say(ringMessage{Signal: &ringSignal{slot, round}})
	if g.ring.session.Err() != nil { // nobody is there to hear it
		return nil
	}
	return err
}

// confirm has nothing to do: await has waited.
func (g *events) confirm(context.Context, int, uint64) error { return nil }

func (g *events) flush(ctx context.Context, rounds []uint64) error {
	for slot, round := range rounds {
		if round == 0 {
			continue
		}
		if err := g.said(ctx, slot, round); err != nil {
			return err
		}
		if err := g.in[slot].SynchronizeContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (g *events) complete(rounds []uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for slot, round := range rounds {
		if g.rounds[slot] < round {
			return false
		}
		if done, err := g.in[slot].Query(); round > 0 && (!done || err != nil) {
			return false
		}
	}
	return true
}

func (g *events) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		g.change()
	}
}

func (g *events) settle() {}

func (g *events) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *events) close() (err error) {
	g.fail(&cuda.Error{Op: "ring", Err: cuda.ErrClosed})
	for _, e := range append(g.out, g.in...) {
		err = errors.Join(err, e.Close())
	}
	return err
}
