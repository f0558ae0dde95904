package ipc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Session is one end of a connection between two processes. Both ends can offer
// events and device memory, and attach what the other offers. Any number of
// goroutines may share it. It must be closed.
type Session struct {
	peer    Credentials
	process driver.Process // the peer
	self    driver.Process
	link    link
	done    chan struct{}

	mu      sync.Mutex // held across no call of package cuda or of a user's function
	cond    sync.Cond  // of mu: for the session's own goroutines
	changed chan struct{}
	ended   reason

	left, peerLeft  bool // has said goodbye
	sentBye, gotBye bool // has released everything
	broken          bool // nothing is read or written any more
	final           bool // what is queued is the last
	gone            bool // the peer is completely
	dying           reason
	stopWatching    func()
	offers          map[string]*offer
	offersByID      map[uint64]*offer
	lastID          uint64
	reclaimed       []*offer // whose keepers must be closed
	reclaiming      bool
	remotes         map[string]*remote // not withdrawn
	remotesByID     map[uint64]*remote
	attached        int // what is not released
	attachments     map[*attachment]struct{}
	queue           queue
	channels        channels
	whenGone        hooks // or when it has released everything
	whenDying       hooks
	whenDead        hooks
	rings           ringTable
}

// newSession starts a session on a link over which both ends have said hello.
func newSession(l link, peer Credentials, process, self driver.Process, procs *driver.Processes) (*Session, error) {
	s := &Session{
		peer:        peer,
		process:     process,
		self:        self,
		link:        l,
		done:        make(chan struct{}),
		changed:     make(chan struct{}),
		offers:      map[string]*offer{},
		offersByID:  map[uint64]*offer{},
		remotes:     map[string]*remote{},
		remotesByID: map[uint64]*remote{},
		attachments: map[*attachment]struct{}{},
	}
	s.cond.L = &s.mu
	s.channels.receivers = map[string]*receiver{}
	stop, err := procs.Watch(process, s.peerDying, s.peerGone)
	over := errors.Is(err, os.ErrNotExist) // what it said before it ended counts
	switch {
	case over:
		stop = func() {}
	case err != nil:
		return nil, processError("session", err)
	}
	s.rings.listen(s)
	s.mu.Lock()
	s.stopWatching = stop
	s.settle()
	s.mu.Unlock()
	go s.read()
	go s.write()
	if over {
		s.peerDying()
		s.peerGone()
	}
	return s, nil
}

// Peer returns who is at the other end.
func (s *Session) Peer() Credentials {
	if !s.made() {
		return Credentials{}
	}
	return s.peer
}

// Done returns a channel that is closed when the session is over: the peer has said
// goodbye or begins to die, the connection is broken, or this end was closed. What was
// offered and attached stays valid as long as it is needed, see the package's
// documentation.
func (s *Session) Done() <-chan struct{} {
	if !s.made() {
		return past
	}
	return s.done
}

// Err returns nil until Done is closed, and then why: the error matches [ErrLeft],
// [cuda.ErrPeerGone], [ErrProtocol], or, after Close, [cuda.ErrClosed].
func (s *Session) Err() error {
	if err := s.usable("session"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.rule == nil {
		return nil
	}
	return s.ended.error("session")
}

// String names the session by the peer.
func (s *Session) String() string {
	if !s.made() {
		return "ipc.Session(nil)"
	}
	return fmt.Sprintf("ipc.Session(process %d)", s.peer.PID)
}

// farewell is how long Close waits at most until the goodbye is written.
const farewell = time.Second

// Close closes the session's rings, which for a consumer waits until the device is idle,
// and says goodbye. Nothing more is offered or attached; all that was attached
// through the session is closed, as by its own Close, which for memory waits until the
// device is idle; what was offered stays alive, behind the scenes, until the peer has
// released it or is gone. Close does not wait for the peer. Closing again is nil.
//
// A process that ends itself right after that takes back what the peer may still use:
// call [Session.Shutdown] instead.
func (s *Session) Close() error {
	if !s.made() {
		return nil
	}
	closed := s.rings.close()
	s.mu.Lock()
	if s.left {
		s.mu.Unlock()
		return nil
	}
	s.left = true
	s.post(message{Type: typeLeave})
	s.end(reason{cuda.ErrClosed, ""})
	s.channels.drop()
	for _, o := range s.offers {
		o.withdrawn = true
	}
	var attached []*attachment
	for a := range s.attachments {
		attached = append(attached, a)
	}
	s.settle()
	s.mu.Unlock()

	errs := []error{closed}
	for _, a := range attached {
		errs = append(errs, a.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = s.wait(ctx, func() bool { return s.queue.idle() || s.broken })
	return errors.Join(errs...)
}

// Shutdown closes the session and waits until the peer has released all that was
// offered, or is gone. If ctx ends first the error matches ctx.Err(), and what the
// peer still uses stays alive.
func (s *Session) Shutdown(ctx context.Context) error {
	const op = "session shutdown"
	if err := s.usable(op); err != nil {
		return err
	}
	err := s.Close()
	if waitErr := s.wait(ctx, func() bool { return len(s.offers) == 0 }); waitErr != nil {
		waitErr = &cuda.Error{Op: op, Err: waitErr, Detail: fmt.Sprintf("process %d has not released all that was offered to it", s.peer.PID)}
		return errors.Join(err, waitErr)
	}
	return err
}

// wait waits until f, which is called with mu held, holds.
func (s *Session) wait(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := f(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The methods below are called with mu held.

// notify wakes all who wait for a change.
func (s *Session) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.cond.Broadcast()
}

// end ends the session for its users.
func (s *Session) end(r reason) {
	if s.ended.rule != nil {
		return
	}
	s.ended = r
	close(s.done)
	for _, r := range s.remotesByID {
		r.withdraw()
	}
	clear(s.remotes)
	s.notify()
}

// disconnect gives the connection up. Keepers stay until the peer is gone.
func (s *Session) disconnect(r reason) {
	if s.broken {
		return
	}
	s.broken = true
	s.queue.drop()
	s.link.close()
	s.end(r)
	s.notify()
	s.settle()
}

// breakOff is disconnect after the peer was told why.
func (s *Session) breakOff(v violation) {
	detail := fmt.Sprintf("process %d sent %v", s.peer.PID, v)
	s.queue.drop()
	s.post(message{Type: typeError, Code: codeProtocol, Text: v.Error()})
	s.final = true
	s.link.writeBy(time.Now().Add(farewell))
	s.end(reason{ErrProtocol, detail})
}

// settle does what the state asks for, after each change.
func (s *Session) settle() {
	if (s.left || s.peerLeft) && s.attached == 0 && !s.sentBye && !s.broken && !s.final {
		s.post(message{Type: typeBye})
		s.sentBye = true
	}
	if s.sentBye && s.gotBye && !s.final {
		s.final = true
		s.notify()
	}
	if s.gotBye || s.gone {
		for _, o := range s.offers {
			s.reclaim(o)
		}
		s.whenGone.fire()
	}
	needless := s.gotBye && s.attached == 0 || s.gone || s.left && s.broken && len(s.offers) == 0 && s.whenGone.empty()
	if stop := s.stopWatching; stop != nil && needless {
		s.stopWatching = nil
		go stop() // which may wait for whoever calls this
	}
}

// peerDying is called when the peer's process begins to end. What it had written before
// still counts.
func (s *Session) peerDying() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whenDying.fire()
	s.lose(fmt.Sprintf("process %d has died", s.peer.PID))
}

// lose gives the reader a last chance to find out why the connection is lost.
func (s *Session) lose(detail string) {
	if s.dying.rule == nil {
		s.dying = reason{cuda.ErrPeerGone, detail}
	}
	s.link.readBy(time.Now().Add(lastChance))
	s.cond.Broadcast()
}

// lastChance is for what is on its way.
const lastChance = 5 * time.Millisecond

// peerGone is called when nothing is left of the peer's process.
func (s *Session) peerGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.whenDead.fire()
	s.settle()
}

// processError is the error of a process that cannot be found or watched.
func processError(op string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &cuda.Error{Op: op, Err: cuda.ErrPeerGone, Detail: err.Error()}
	}
	return &cuda.Error{Op: op, Err: err}
}
