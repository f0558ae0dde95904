package ipc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/proc"
)

// patience is how long a listener waits for the hello of who dials.
const patience = 5 * time.Second

func (o *Options) orDefault() *Options {
	full := Options{}
	if o != nil {
		full = *o
	}
	if full.Allow == nil {
		full.Allow = sameUser
	}
	if full.processes == nil {
		full.processes = proc.Processes
	}
	if full.patience == 0 {
		full.patience = patience
	}
	return &full
}

func sameUser(c Credentials) error {
	if own := os.Geteuid(); int64(c.UID) != int64(own) {
		return fmt.Errorf("user %d is not user %d, and no others are allowed", c.UID, own)
	}
	return nil
}

// meet checks who is at the other end of a link, exchanges hellos and starts a session.
// If it fails the peer is told why, and the link is closed.
func meet(ctx context.Context, op string, l link, peer Credentials, opts *Options) (_ *Session, err error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		l.readBy(time.Now())
		l.writeBy(time.Now())
	})
	inTime := sync.OnceValue(func() bool { // after that ctx does nothing to l
		if stop() {
			return true
		}
		<-interrupted
		return false
	})
	s, code, err := greet(op, l, peer, opts, inTime)
	if !inTime() && errors.Is(err, os.ErrDeadlineExceeded) {
		err = &cuda.Error{Op: op, Err: ctx.Err(), Detail: fmt.Sprintf("process %d has not said hello in time", peer.PID)}
		if errors.Is(ctx.Err(), context.Canceled) {
			code = codeLeft
		}
	}
	if err != nil {
		if code != "" {
			text := err.Error()
			if e := (*cuda.Error)(nil); errors.As(err, &e) {
				text = e.Detail
			}
			frame, _ := encode(message{Type: typeError, Code: code, Text: text})
			l.writeBy(time.Now().Add(farewell))
			_ = l.write(frame, nil)
		}
		l.close()
		return nil, err
	}
	return s, nil
}

// greet is meet without the consequences: with an error goes what to tell the peer, if
// that is still of use. inTime ends the time that there is for it, and says whether that
// was enough.
func greet(op string, l link, peer Credentials, opts *Options, inTime func() bool) (_ *Session, code string, err error) {
	fail := func(code string, rule error, format string, args ...any) (*Session, string, error) {
		return nil, code, &cuda.Error{Op: op, Err: rule, Detail: fmt.Sprintf(format, args...)}
	}
	if peer.PID == 0 {
		return fail(codeUnreachable, cuda.ErrUnreachable, "one process is outside of the PID namespace of the other, which could not see it die; let both run in the same")
	}
	if err := opts.Allow(peer); err != nil {
		return fail(codeRefused, refusal{err}, "process %d: %v", peer.PID, err)
	}
	self, err := opts.processes.Find(0)
	if err != nil {
		return nil, codeUnreachable, processError(op, err)
	}
	process, err := opts.processes.Find(peer.PID)
	if err != nil {
		return nil, codeUnreachable, processError(op, err)
	}
	own := identityOf(self)
	frame, err := encode(message{Type: typeHello, Version: version, Process: &own})
	if err != nil {
		return nil, "", err
	}
	writeErr := l.write(frame, nil) // the peer may have closed, and have said why before
	body, file, err := l.read()
	if file != nil {
		file.Close()
	}
	if err == nil && file != nil {
		err = violated("a file with its hello")
	}
	var m message
	if err == nil {
		m, err = decode(body)
	}
	var v violation
	switch {
	case errors.As(err, &v):
		return fail(codeProtocol, ErrProtocol, "process %d sent %v", peer.PID, v)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(writeErr, os.ErrDeadlineExceeded) && m.Type != typeError:
		return fail(codeProtocol, os.ErrDeadlineExceeded, "process %d did not say hello in time", peer.PID)
	case err != nil || writeErr != nil && m.Type != typeError:
		return fail("", cuda.ErrPeerGone, "%s", parted(peer.PID, errors.Join(writeErr, err), "hello"))
	case m.Type == typeError:
		return nil, "", tell(peer.PID, m).error(op)
	case m.Type != typeHello:
		return fail(codeProtocol, ErrProtocol, "process %d sent a message of type %s before its hello", peer.PID, m.Type)
	case m.Version != version:
		return fail(codeVersion, ErrProtocol, "process %d speaks version %d of the protocol, and process %d version %d", peer.PID, m.Version, self.PID, version)
	case m.Process.Namespace != self.Namespace:
		return fail(codeUnreachable, cuda.ErrUnreachable, "process %d is in another PID namespace, %d and not %d; let both run in the same", peer.PID, m.Process.Namespace, self.Namespace)
	case *m.Process != identityOf(process):
		return fail(codeUnreachable, cuda.ErrPeerGone, "process %d is not the one that made the connection", peer.PID)
	}
	if !inTime() {
		return fail(codeLeft, os.ErrDeadlineExceeded, "process %d said hello too late", peer.PID)
	}
	s, err := newSession(l, peer, process, self, opts.processes)
	if err != nil {
		return nil, codeUnreachable, err
	}
	return s, "", nil
}
