package ipc

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Shared is what can be offered to another process: a *cuda.Event made with
// EventOptions.Interprocess, or a *cuda.Buffer of memory of cuda.Alloc.
type Shared interface {
	Device() *cuda.Device
	Exporter() (driver.Process, bool)
}

// offer is something that the peer can attach.
type offer struct {
	id        uint64
	name      string
	keeper    io.Closer // keeps the native object alive
	withdrawn bool
	released  bool // the peer uses it no more
	closed    chan struct{}
	err       error // of closing keeper
}

// Offer lets the peer attach x under a name, which is 1 to 255 bytes of printable text.
// From then on the session keeps what x stands for alive: x may be closed at any time,
// and the memory or the event goes when the peer has released it too, or is
// completely gone. The name is free again after [Session.Withdraw]. Names that begin
// with "ring " are those of the memory of rings, see [NewProducer].
func (s *Session) Offer(name string, x Shared) error {
	if strings.HasPrefix(name, "ring ") {
		return invalid(fmt.Sprintf("session offer %q", name), "names that begin with %q are for rings; use another", "ring ")
	}
	return s.offerNamed(name, x)
}

// offerNamed is Offer under any name.
func (s *Session) offerNamed(name string, x Shared) error {
	op := fmt.Sprintf("session offer %q", name)
	if err := s.usable(op); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return invalid("session offer", "%v", err)
	}
	if x == nil {
		return invalid(op, "what is to be offered is nil")
	}
	t, err := export(x)
	if err != nil {
		return &cuda.Error{Op: op, Err: err}
	}
	drv := x.Device().Driver()
	self, err := drv.FindProcess(0)
	if err != nil {
		return &cuda.Error{Op: op, Err: err}
	}
	if t.Process != self {
		return invalid(op, "it is process %d's: only that can offer it", t.Process.PID)
	}
	keeper, err := keep(drv, t)
	if err != nil {
		return &cuda.Error{Op: op, Err: err}
	}
	if err := s.offer(op, &offer{name: name, keeper: keeper, closed: make(chan struct{})}, t); err != nil {
		_ = keeper.Close() // x still has it
		return err
	}
	return nil
}

// export returns the token of what is to be offered.
func export(x Shared) (Token, error) {
	switch x := x.(type) {
	case *cuda.Event:
		return ExportEvent(x)
	case memory:
		return exportMemory("buffer export", x)
	}
	return Token{}, invalid("export", "%T is neither a *cuda.Event nor a *cuda.Buffer", x)
}

// keep opens what is this process's own, so that it lives on.
func keep(drv *cuda.Driver, t Token) (io.Closer, error) {
	if t.Kind == EventToken {
		return ImportEvent(drv, t, nil)
	}
	return ImportBuffer[uint8](drv, t, nil)
}

func (s *Session) offer(op string, o *offer, t Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch old := s.offers[o.name]; {
	case s.ended.rule != nil:
		return s.ended.error(op)
	case old != nil && old.withdrawn:
		return invalid(op, "it was withdrawn, and process %d has not released it yet", s.peer.PID)
	case old != nil:
		return invalid(op, "something of this name is offered already")
	case len(s.offers) == offerLimit:
		return invalid(op, "%d things are offered already, and there can be no more", offerLimit)
	}
	s.lastID++
	o.id = s.lastID
	s.offers[o.name], s.offersByID[o.id] = o, o
	s.post(message{Type: typeOffer, ID: o.id, Name: o.name, Token: &t})
	return nil
}

// Withdraw takes an offer back, and returns when the peer has released it or is
// completely gone: if x was closed, and is not offered under another name or in another
// session, all of it has been given back to the device then.
// The peer is asked by [Session.Withdrawn]. If ctx ends first the error matches
// ctx.Err(); the offer stays withdrawn, and Withdraw can be called again to wait.
// After Close, which withdraws everything, and after the peer is gone, Withdraw returns
// nil for what is no longer there.
func (s *Session) Withdraw(ctx context.Context, name string) error {
	op := fmt.Sprintf("session withdraw %q", name)
	if err := s.usable(op); err != nil {
		return err
	}
	s.mu.Lock()
	o := s.offers[name]
	over := s.left || s.gotBye || s.gone
	if o != nil && !o.withdrawn {
		o.withdrawn = true
		s.post(message{Type: typeWithdraw, ID: o.id})
	}
	s.mu.Unlock()
	switch {
	case o == nil && over:
		return nil
	case o == nil:
		return invalid(op, "nothing of this name is offered")
	}
	select {
	case <-o.closed:
		return o.err
	default:
	}
	select {
	case <-o.closed:
		return o.err
	case <-ctx.Done():
		return &cuda.Error{Op: op, Err: ctx.Err(), Detail: fmt.Sprintf("process %d has not released it yet", s.peer.PID)}
	}
}

func (s *Session) receiveReleased(m message) error {
	o := s.offersByID[m.ID]
	if o == nil || !o.withdrawn || o.released {
		return violated("a release of offer %d, which was not withdrawn", m.ID)
	}
	s.reclaim(o)
	return nil
}

// reclaim has the keeper of an offer closed that the peer uses no more. That may block
// until a device is idle, so it is done elsewhere.
func (s *Session) reclaim(o *offer) {
	if o.released {
		return
	}
	o.released = true
	s.reclaimed = append(s.reclaimed, o)
	if !s.reclaiming {
		s.reclaiming = true
		go s.closeKeepers()
	}
}

func (s *Session) closeKeepers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.reclaimed) > 0 {
		o := s.reclaimed[0]
		s.reclaimed = s.reclaimed[1:]
		s.mu.Unlock()
		err := o.keeper.Close()
		s.mu.Lock()
		o.err = err
		delete(s.offers, o.name)
		delete(s.offersByID, o.id)
		close(o.closed)
		s.notify()
	}
	s.reclaiming = false
	s.settle()
}
