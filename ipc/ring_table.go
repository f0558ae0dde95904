package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// ringTable has the rings of a session, and what the other end has said of those that
// nobody here has taken yet. All that rings have to say goes through one channel of the
// session, with the ring's number, which the producer gives: a name can be used again at
// once, and what comes too late for a ring is for nobody.
type ringTable struct {
	mu     sync.Mutex
	last   uint64
	open   map[ringID]*ring
	wanted map[string]*ring // by name: consumers that wait for a producer
	setups []ringMessage    // from producers that wait for a consumer
	closed bool             // there will be no consumer any more
}

// ringID is the number of a ring, as its producer counts.
type ringID struct {
	number uint64
	ours   bool // we are the producer
}

const (
	ringsChannel = "rings"
	// maxSetups is how many rings may wait for a consumer.
	maxSetups = 64
)

// listen begins to listen to what the other end's rings say.
func (x *ringTable) listen(s *Session) {
	x.open, x.wanted = map[ringID]*ring{}, map[string]*ring{}
	_, _ = s.receiver(ringsChannel, func(payload []byte, file *os.File) {
		var m ringMessage
		if json.Unmarshal(payload, &m) != nil {
			m = ringMessage{} // which says nothing
		}
		m.file = file
		x.hear(s, m)
	})
}

// hear takes a message to whom it is for.
func (x *ringTable) hear(s *Session, m ringMessage) {
	x.mu.Lock()
	if m.Producer && (m.Setup != nil || m.Error != "") {
		if r := x.wanted[m.Name]; r != nil {
			delete(x.wanted, m.Name)
			x.enter(r, ringID{m.Ring, false})
			r.heard <- m // it is empty
			x.mu.Unlock()
			return
		}
	}
	refused := false
	switch r := x.open[ringID{m.Ring, !m.Producer}]; {
	case m.Setup != nil && m.Producer && x.closed:
	case m.Setup != nil && m.Producer && len(x.setups) < maxSetups:
		x.setups = append(x.setups, m)
		m.file = nil
	case m.Setup != nil && m.Producer:
		refused = true
	case m.Closed && m.Producer && r == nil:
		x.forget(m.Ring)
	case r != nil:
		select {
		case r.heard <- m: // before r leaves
			x.mu.Unlock()
			return
		default: // it has much to hear
		}
		x.mu.Unlock()
		select {
		case r.heard <- m:
		case <-r.over:
			m.drop()
		}
		return
	}
	x.mu.Unlock()
	m.drop()
	if refused {
		stranger := &ring{session: s, id: ringID{m.Ring, false}}
		_ = stranger.say(ringMessage{Ready: &ringReady{Error: fmt.Sprintf("%d other rings wait for a consumer already", maxSetups)}})
	}
}

// forget drops what a producer that has given up had described. The caller holds mu.
func (x *ringTable) forget(number uint64) {
	x.setups = slices.DeleteFunc(x.setups, func(waiting ringMessage) bool {
		if waiting.Ring != number {
			return false
		}
		waiting.drop()
		return true
	})
}

// enter has r told of what is said of a ring. The caller holds mu.
func (x *ringTable) enter(r *ring, id ringID) {
	r.id = id
	x.open[id] = r
}

// produce gives r a number. It reports whether this end has no other ring of its name.
func (x *ringTable) produce(r *ring) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inUse(r, true) {
		return false
	}
	x.last++
	x.enter(r, ringID{x.last, true})
	return true
}

// inUse reports whether another ring has the name of r. The caller holds mu.
func (x *ringTable) inUse(r *ring, ours bool) bool {
	for id, other := range x.open {
		if id.ours == ours && other.name == r.name && !other.isClosed() {
			return true
		}
	}
	return !ours && x.wanted[r.name] != nil
}

// consume returns the oldest ring of r's name that a producer has described; if there is
// none, r will hear of the next. It reports whether this end has no other ring of its
// name.
func (x *ringTable) consume(r *ring) (m ringMessage, found, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.inUse(r, false) {
		return m, false, false
	}
	for i, m := range x.setups {
		if m.Name == r.name {
			x.setups = slices.Delete(x.setups, i, i+1)
			x.enter(r, ringID{m.Ring, false})
			return m, true, true
		}
	}
	x.wanted[r.name] = r
	return m, false, true
}

// opened notes which end a ring is of, so that close can close it.
func (x *ringTable) opened(r *ring, end io.Closer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r.closer = end
}

// concerns reports whether a message is about the ring that r is.
func (x *ringTable) concerns(m ringMessage, r *ring) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open[r.id] == r && m.Ring == r.id.number
}

// leave is the reverse of produce and consume. A ring that r has heard of and not taken
// is for the next consumer, unless its producer has given up meanwhile.
func (x *ringTable) leave(r *ring) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[r.id] == r {
		delete(x.open, r.id)
	}
	if x.wanted[r.name] == r {
		delete(x.wanted, r.name)
	}
	for len(r.heard) > 0 {
		m := <-r.heard
		switch {
		case m.Setup != nil && m.Producer && !x.closed:
			x.setups = slices.Insert(x.setups, 0, m)
			continue
		case m.Closed && m.Producer:
			x.forget(m.Ring)
		}
		m.drop()
	}
}

// close closes all rings, and forgets those that nobody has taken, or will.
func (x *ringTable) close() (err error) {
	x.mu.Lock()
	var all []io.Closer
	for _, r := range x.open {
		if r.closer != nil {
			all = append(all, r.closer)
		}
	}
	for _, m := range x.setups {
		m.drop()
	}
	x.setups, x.closed = nil, true
	x.mu.Unlock()
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (m ringMessage) drop() {
	if m.file != nil {
		m.file.Close()
	}
}
