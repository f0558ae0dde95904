package ipc

import (
	"errors"
	"fmt"
	"net"
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
	default:
		s.disconnect(reason{cuda.ErrPeerGone, parted(s.peer.PID, err, "goodbye")})
	}
	return false
}

// parted says how the connection to a process was lost, by the error of a read or a write,
// before the process has said what it should.
func parted(pid int, err error, unsaid string) string {
	switch {
	case hungUp(err):
		return fmt.Sprintf("process %d has closed the connection without a %s", pid, unsaid)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("process %d has not read for %v what was sent to it", pid, writeTimeout)
	}
	// The package net adds the path of the socket: that which it had while it was made.
	if e := (*net.OpError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Sprintf("the connection to process %d is broken: %v", pid, err)
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
	switch {
	case err != nil:
	case m.File && file == nil:
		err = violated("%s that announces a file, and came without one", m.kind())
	case !m.File && file != nil:
		err = violated("%s that came with a file that it does not announce", m.kind())
	}
	if err == nil && m.Type == typeMessage {
		return s.receiveMessage(m, file)
	}
	if file != nil {
		file.Close()
		if err == nil {
			err = violated("a file with %s", m.kind())
		}
	}
	if err != nil {
		return err
	}
	switch {
	case m.Type == typeError:
		return tell(s.peer.PID, m)
	case s.gotBye:
		return violated("%s after its bye", m.kind())
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
