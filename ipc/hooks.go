package ipc

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/purecuda/cuda"
)

// channels are what rings talk through: named, in order, with a file now and then. The
// session's mutex guards them.
type channels struct {
	receivers map[string]*receiver
	pending   []delivery
	running   bool // a goroutine delivers
	dropped   bool
}

type receiver struct {
	f func(payload []byte, file *os.File)
}

type delivery struct {
	channel string
	payload []byte
	file    *os.File
}

const (
	// unclaimedLimit is how many messages of a channel may wait for a receiver.
	unclaimedLimit = 64
	// pendingLimit is how many may wait at all before the session stops reading: those
	// of a channel that has a receiver will go soon.
	pendingLimit = 256
	// fileLimit is how many of those that wait may have a file, in both cases.
	fileLimit = 64
)

func (c *channels) overflowing() bool {
	return (len(c.pending) >= pendingLimit || c.files() >= fileLimit) && c.next() >= 0
}

// next returns the index of the first message that somebody wants, or -1.
func (c *channels) next() int {
	return slices.IndexFunc(c.pending, func(d delivery) bool { return c.receivers[d.channel] != nil })
}

// drop discards what has arrived and what will.
func (c *channels) drop() {
	c.dropped = true
	clear(c.receivers)
	for _, d := range c.pending {
		if d.file != nil {
			d.file.Close()
		}
	}
	c.pending = nil
}

// sendTo sends a message of at most 4 KiB of JSON to the peer's receiver of a channel,
// and a duplicate of f unless that is nil. It does not wait: if too much is waiting to
// be sent already, that is an error.
func (s *Session) sendTo(channel string, payload []byte, f *os.File) error {
	op := fmt.Sprintf("session send to %q", channel)
	if err := checkName(channel); err != nil {
		return invalid("session send", "%v", err)
	}
	if len(payload) > payloadLimit || len(payload) > 0 && !json.Valid(payload) {
		return invalid(op, "the payload, of %d bytes, is not JSON of at most %d bytes", len(payload), payloadLimit)
	}
	frame, err := encode(message{Type: typeMessage, Name: channel, Payload: payload, File: f != nil})
	if err != nil {
		return invalid(op, "%v", err)
	}
	if f != nil {
		if f, err = duplicate(f); err != nil {
			return &cuda.Error{Op: op, Err: err}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended.rule != nil:
		err = s.ended.error(op)
	case s.queue.full(frame, f):
		err = &cuda.Error{Op: op, Err: errNotReading, Detail: fmt.Sprintf("%d bytes wait for process %d already", s.queue.bytes, s.peer.PID)}
	default:
		s.enqueue(outgoing{frame, f})
		return nil
	}
	if f != nil {
		f.Close()
	}
	return err
}

// receiver has f called with the messages of a channel: those that came before first, in
// order, one at a time of all channels, so f must not block. The file is f's to close.
// After stop, which f may call, no further call begins; what comes then waits again.
func (s *Session) receiver(channel string, f func(payload []byte, file *os.File)) (stop func(), err error) {
	op := fmt.Sprintf("session receive from %q", channel)
	if err := checkName(channel); err != nil {
		return nil, invalid("session receive", "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.channels.dropped:
		return nil, &cuda.Error{Op: op, Err: cuda.ErrClosed}
	case s.channels.receivers[channel] != nil:
		return nil, invalid(op, "it has a receiver already")
	}
	r := &receiver{f}
	s.channels.receivers[channel] = r
	s.deliver()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.channels.receivers[channel] == r {
			delete(s.channels.receivers, channel)
			s.notify()
		}
	}, nil
}

// receiveMessage takes a message of a channel, and its file. The caller holds mu.
func (s *Session) receiveMessage(m message, file *os.File) error {
	c := &s.channels
	err := error(nil)
	switch {
	case s.peerLeft:
		err = violated("a message for %q after its goodbye", m.Name)
	case c.receivers[m.Name] == nil && c.unclaimed(m.Name) == unclaimedLimit:
		err = violated("more than %d messages for %q, which nobody receives", unclaimedLimit, m.Name)
	case file != nil && c.receivers[m.Name] == nil && c.files() >= fileLimit:
		err = violated("more than %d files that nobody receives", fileLimit)
	case len(c.pending) >= 2*pendingLimit:
		err = violated("more than %d messages that nobody receives", 2*pendingLimit)
	}
	if err != nil || c.dropped {
		if file != nil {
			file.Close()
		}
		return err
	}
	c.pending = append(c.pending, delivery{m.Name, m.Payload, file})
	s.deliver()
	return nil
}

func (c *channels) unclaimed(channel string) (n int) {
	for _, d := range c.pending {
		if d.channel == channel {
			n++
		}
	}
	return n
}

// files counts those that wait.
func (c *channels) files() (n int) {
	for _, d := range c.pending {
		if d.file != nil {
			n++
		}
	}
	return n
}

// deliver sees to it that what somebody wants is delivered. The caller holds mu.
func (s *Session) deliver() {
	if !s.channels.running && s.channels.next() >= 0 {
		s.channels.running = true
		go s.deliverAll()
	}
}

func (s *Session) deliverAll() {
	c := &s.channels
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := c.next(); i >= 0; i = c.next() {
		d := c.pending[i]
		c.pending = slices.Delete(c.pending, i, i+1)
		f := c.receivers[d.channel].f
		s.cond.Broadcast()
		s.mu.Unlock()
		f(d.payload, d.file)
		s.mu.Lock()
	}
	c.running = false
	s.cond.Broadcast()
}

// hooks are functions to be called once, each on a goroutine of its own, when something
// has happened. The session's mutex guards them.
type hooks struct {
	fired bool
	all   map[*func()]struct{}
}

func (h *hooks) empty() bool { return len(h.all) == 0 }

// fire has all called, and those that will be added.
func (h *hooks) fire() {
	h.fired = true
	for f := range h.all {
		go (*f)()
	}
	h.all = nil
}

func (s *Session) hook(h *hooks, f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.fired {
		go f()
		return func() {}
	}
	if h.all == nil {
		h.all = map[*func()]struct{}{}
	}
	h.all[&f] = struct{}{}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(h.all, &f)
		s.settle()
	})
}

// onDying has f called when the peer's process begins to end. While something of it is
// attached here, or of this end there, that is noticed.
func (s *Session) onDying(f func()) (stop func()) { return s.hook(&s.whenDying, f) }

// onDead has f called when the peer is completely gone. While something of it is attached
// here that is noticed.
func (s *Session) onDead(f func()) (stop func()) { return s.hook(&s.whenDead, f) }

// onGone has f called when the peer has released everything or is completely gone.
func (s *Session) onGone(f func()) (stop func()) { return s.hook(&s.whenGone, f) }
