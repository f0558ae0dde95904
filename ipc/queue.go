package ipc

import (
	"os"
	"time"
)

// A peer that does not read for writeTimeout is given up.
const writeTimeout = 10 * time.Second

// queue is what is to be written. The session's mutex guards it.
type queue struct {
	frames  []outgoing
	bytes   int
	files   int
	writing bool
	over    bool // nothing is written any more
}

type outgoing struct {
	frame []byte
	file  *os.File // the queue's own
}

// Messages of channels are refused beyond these; what else there is to say is bounded
// by the offers.
const (
	queueBytes = 4 << 20
	queueFiles = 64
	frameCost  = 128 // bytes for each, beside its own
)

func (q *queue) full(frame []byte, f *os.File) bool {
	return q.bytes+len(frame) > queueBytes || f != nil && q.files == queueFiles
}

func (q *queue) push(o outgoing) {
	q.frames = append(q.frames, o)
	q.bytes += len(o.frame) + frameCost
	if o.file != nil {
		q.files++
	}
}

func (q *queue) pop() outgoing {
	o := q.frames[0]
	q.frames[0] = outgoing{}
	q.frames = q.frames[1:]
	q.bytes -= len(o.frame) + frameCost
	if o.file != nil {
		q.files--
	}
	return o
}

// idle reports whether all was written.
func (q *queue) idle() bool { return len(q.frames) == 0 && !q.writing }

func (q *queue) drop() {
	for len(q.frames) > 0 {
		q.pop().discard()
	}
}

func (o outgoing) discard() {
	if o.file != nil {
		o.file.Close()
	}
}

// post queues a message of the session's own. The caller holds mu.
func (s *Session) post(m message) {
	if s.broken || s.final || s.sentBye && m.Type != typeError {
		return
	}
	frame, err := encode(m)
	if err != nil {
		panic("ipc: " + err.Error()) // all of it is the session's own
	}
	s.enqueue(outgoing{frame: frame})
}

func (s *Session) enqueue(o outgoing) {
	s.queue.push(o)
	s.cond.Broadcast()
}

// write is the goroutine that writes.
func (s *Session) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue.frames) == 0 && !s.final && !s.broken {
			s.cond.Wait()
		}
		if s.broken {
			return
		}
		if len(s.queue.frames) == 0 { // of a session that is final
			s.disconnect(s.ended)
			return
		}
		next := s.queue.pop()
		s.queue.writing = true
		timeout := writeTimeout
		if s.final {
			timeout = farewell
		}
		s.mu.Unlock()
		s.link.writeBy(time.Now().Add(timeout))
		err := s.link.write(next.frame, next.file)
		next.discard()
		s.mu.Lock()
		s.queue.writing = false
		if err != nil && !s.broken {
			s.queue.drop()
			if s.final {
				s.disconnect(s.ended)
			} else { // perhaps the peer has said why
				s.queue.over = true
				s.lose(parted(s.peer.PID, err, "goodbye"))
			}
			s.notify()
			return
		}
		if s.queue.idle() {
			s.notify()
		}
	}
}
