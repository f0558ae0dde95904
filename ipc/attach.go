package ipc

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/purecuda/cuda"
)

// remote is something that the peer offers.
type remote struct {
	id        uint64
	name      string
	token     Token
	attached  int // how often, and not released
	wanted    bool
	withdrawn chan struct{} // closed when wanted is set, or the session ends
}

// attachment is a remote that is open here.
type attachment struct{ io.Closer }

// Event attaches an event that the peer offers under a name: it waits until it is
// offered, and imports it by [ImportEvent], whose comment says what to do
// about the peer's death. Close the event when it is no longer needed, at the latest
// when [Session.Withdrawn] says so; Close of the session closes it too.
func (s *Session) Event(ctx context.Context, drv *cuda.Driver, name string) (*cuda.Event, error) {
	return attach(ctx, s, "event", drv, name, func(t Token, opts *ImportOptions) (*cuda.Event, error) {
		return ImportEvent(drv, t, opts)
	})
}

// Buffer attaches memory that the peer offers under a name as elements of type T, see
// [Session.Event] and [ImportBuffer].
func Buffer[T cuda.Element](ctx context.Context, s *Session, drv *cuda.Driver, name string) (*cuda.Buffer[T], error) {
	return attach(ctx, s, "buffer", drv, name, func(t Token, opts *ImportOptions) (*cuda.Buffer[T], error) {
		return ImportBuffer[T](drv, t, opts)
	})
}

// Withdrawn returns a channel that is closed when the peer wants back what it offers
// under a name, or the session is over: time to close what was attached. It is closed
// already if nothing of the name is offered.
func (s *Session) Withdrawn(name string) <-chan struct{} {
	if !s.made() {
		return past
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.remotes[name]; r != nil {
		return r.withdrawn
	}
	return past
}

// attach attaches a *cuda.Event or a *cuda.Buffer.
func attach[X io.Closer](ctx context.Context, s *Session, what string, drv *cuda.Driver, name string, open func(Token, *ImportOptions) (X, error)) (x X, err error) {
	var none X
	op := fmt.Sprintf("session %s %q", what, name)
	if err := s.usable(op); err != nil {
		return none, err
	}
	if drv == nil {
		return none, invalid(op, "the driver is nil")
	}
	r, err := s.find(ctx, op, name)
	if err != nil {
		return none, err
	}
	a := new(attachment)
	letGo := sync.OnceFunc(func() { s.letGo(r, a) })
	opened := false
	defer func() {
		if !opened { // also if open panics: else the exporter would wait for ever
			letGo()
		}
	}()
	if x, err = open(r.token, &ImportOptions{Closed: letGo}); err != nil {
		return none, &cuda.Error{Op: op, Err: err}
	}
	opened = true
	s.mu.Lock()
	left := s.left
	if !left {
		a.Closer = x
		s.attachments[a] = struct{}{}
	}
	s.mu.Unlock()
	if left {
		_ = x.Close()
		return none, &cuda.Error{Op: op, Err: cuda.ErrClosed}
	}
	return x, nil
}

// find waits until something is offered, and counts it as attached.
func (s *Session) find(ctx context.Context, op, name string) (r *remote, err error) {
	if err := checkName(name); err != nil {
		return nil, invalid(op, "%v", err)
	}
	waitErr := s.wait(ctx, func() bool {
		if s.ended.rule != nil {
			err = s.ended.error(op)
			return true
		}
		if r = s.remotes[name]; r != nil {
			r.attached++
			s.attached++
		}
		return r != nil
	})
	if waitErr != nil {
		return nil, &cuda.Error{Op: op, Err: waitErr, Detail: fmt.Sprintf("process %d has not offered it", s.peer.PID)}
	}
	return r, err
}

// letGo is called when an attachment has been closed and nothing uses it any more. What
// it is of may still be open here under another name, for which the peer keeps it.
func (s *Session) letGo(r *remote, a *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.attachments, a)
	r.attached--
	s.attached--
	if r.wanted && r.attached == 0 {
		s.release(r)
	}
	s.settle()
}

func (s *Session) receiveOffer(m message) error {
	switch {
	case s.peerLeft:
		return violated("an offer after its goodbye")
	case len(s.remotesByID) == offerLimit:
		return violated("more than %d offers", offerLimit)
	case s.remotesByID[m.ID] != nil || s.remotes[m.Name] != nil:
		return violated("two offers of one name, %q, or number, %d", m.Name, m.ID)
	case m.Token.Process.Boot == s.self.Boot && m.Token.Process != s.process:
		return violated("an offer of what is process %d's", m.Token.Process.PID)
	}
	if s.sentBye {
		return nil // nobody will want it
	}
	r := &remote{id: m.ID, name: m.Name, token: *m.Token, withdrawn: make(chan struct{})}
	s.remotesByID[r.id] = r
	if s.ended.rule != nil {
		r.withdraw()
		return nil
	}
	s.remotes[r.name] = r
	s.notify()
	return nil
}

func (s *Session) receiveWithdraw(m message) error {
	r := s.remotesByID[m.ID]
	switch {
	case s.sentBye:
		return nil // that says it all
	case r == nil || r.wanted:
		return violated("a withdrawal of offer %d, which there is not", m.ID)
	}
	s.giveBack(r)
	return nil
}

// giveBack lets the peer have back what it wants back, as soon as possible.
func (s *Session) giveBack(r *remote) {
	if r.wanted {
		return
	}
	r.wanted = true
	r.withdraw()
	if s.remotes[r.name] == r {
		delete(s.remotes, r.name)
	}
	if r.attached == 0 {
		s.release(r)
	}
}

func (s *Session) release(r *remote) {
	delete(s.remotesByID, r.id)
	s.post(message{Type: typeReleased, ID: r.id})
}

func (r *remote) withdraw() {
	select {
	case <-r.withdrawn:
	default:
		close(r.withdrawn)
	}
}
