package ipc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/purecuda/cuda"
)

// read is the goroutine that reads.
func (s *Session) read() {
	for {
		body, file, err := s.link.read()
		s.mu.Lock()
		if err == nil && !s.broken && !s.final {
			err = s.receive(body, file)
		} else if file != nil {
			file.Close()
		}
		goesOn := s.goesOn(err)
		if !goesOn && s.queue.over { // nobody else does
			s.disconnect(s.ended)
		}
		s.mu.Unlock()
		if !goesOn {
			return
		}
	}
}

// goesOn takes the result of reading a message. The caller holds mu.
func (s *Session) goesOn(err error) bool {
	var v violation
	var t told
	switch {
	case s.broken:
		return false
	case s.final: // the writer has the last word
		return err == nil
	case err == nil:
		s.settle()
		for s.channels.overflowing() && !s.broken && s.dying.rule == nil {
			s.cond.Wait()
		}
		switch {
		case s.channels.overflowing(): // and there is no time to wait
			s.disconnect(s.dying)
		case s.queue.bytes > 2*queueBytes:
			s.breakOff(violation("much, and reads no answers"))
			return false
		}
		return !s.broken
	case errors.As(err, &v):
		s.breakOff(v)
		s.settle()
		return false
	case s.gotBye:
		s.disconnect(s.ended)
	case errors.As(err, &t):
		s.disconnect(t.reason)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.disconnect(s.dying)
	case err == io.EOF:
		s.disconnect(reason{cuda.ErrPeerGone, fmt.Sprintf("process %d has closed the connection without a goodbye", s.peer.PID)})
	default:
		s.disconnect(reason{cuda.ErrPeerGone, "the connection is broken: " + err.Error()})
	}
	return false
}

// told is the reason that the peer gave for breaking off.
type told struct{ reason }

func (t told) Error() string { return t.detail }

// tell reads an error message of process pid.
func tell(pid int, m message) told {
	rule := cuda.ErrPeerGone
	switch m.Code {
	case codeRefused:
		rule = ErrRefused
	case codeLeft:
		rule = ErrLeft
	case codeUnreachable:
		rule = cuda.ErrUnreachable
	case codeProtocol, codeVersion:
		rule = ErrProtocol
	}
	return told{reason{rule, fmt.Sprintf("process %d says: %s", pid, m.Text)}}
}

// receive acts on a message. The caller holds mu.
func (s *Session) receive(body []byte, file *os.File) error {
	m, err := decode(body)
	if err == nil && m.File != (file != nil) {
		err = violated("a %s that says %v of whether a file comes with it", m.Type, m.File)
	}
	if err == nil && m.Type == typeMessage {
		return s.receiveMessage(m, file)
	}
	if file != nil {
		file.Close()
		if err == nil {
			err = violated("a file with a message of type %s", m.Type)
		}
	}
	if err != nil {
		return err
	}
	switch {
	case m.Type == typeError:
		return tell(s.peer.PID, m)
	case s.gotBye:
		return violated("a %s after its bye", m.Type)
	}
	switch m.Type {
	case typeOffer:
		return s.receiveOffer(m)
	case typeWithdraw:
		return s.receiveWithdraw(m)
	case typeReleased:
		return s.receiveReleased(m)
	case typeLeave:
		if s.peerLeft {
			return violated("a second goodbye")
		}
		s.peerLeft = true
		s.end(reason{ErrLeft, fmt.Sprintf("process %d has said goodbye", s.peer.PID)})
		for _, r := range s.remotesByID {
			s.giveBack(r)
		}
		return nil
	case typeBye:
		if !s.left && !s.peerLeft {
			return violated("a bye before anybody has left")
		}
		s.gotBye = true
		return nil
	}
	return violated("a message of type %s in the middle of a session", m.Type)
}
