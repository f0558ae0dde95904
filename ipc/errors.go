package ipc

import (
	"errors"
	"fmt"

	"github.com/purecuda/cuda"
)

var (
	// ErrLeft: the other process has said goodbye, by [Session.Close].
	ErrLeft = errors.New("the other process has left")
	// ErrProtocol: the other process did not keep to the protocol, or says that this
	// one did not, and the connection was broken off. It matches [cuda.ErrPeerGone] too.
	ErrProtocol error = protocolError{}
	// ErrRefused: the other process is not one that may take part, or says so of this
	// one.
	ErrRefused = errors.New("refused")
)

// errNotReading: the peer has not read what was sent to it.
var errNotReading = errors.New("the other process does not read")

// refusal is [ErrRefused] by [Options.Allow]. What that says is in the error's detail.
type refusal struct{ why error }

func (refusal) Error() string     { return ErrRefused.Error() }
func (r refusal) Unwrap() []error { return []error{ErrRefused, r.why} }

type protocolError struct{}

func (protocolError) Error() string        { return "the protocol was broken" }
func (protocolError) Is(target error) bool { return target == cuda.ErrPeerGone }

// violation says how the other process broke the protocol.
type violation string

func (v violation) Error() string { return string(v) }

func violated(format string, args ...any) error { return violation(fmt.Sprintf(format, args...)) }

func invalid(op, format string, args ...any) error {
	return &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// renamed says in which call an error was met.
func renamed(op string, err error) error {
	e, ok := err.(*cuda.Error)
	if !ok {
		return err
	}
	mine := *e
	mine.Op = op
	return &mine
}

// reason is why a session has ended.
type reason struct {
	rule   error // such as cuda.ErrPeerGone
	detail string
}

func (r reason) error(op string) error {
	return &cuda.Error{Op: op, Err: r.rule, Detail: r.detail}
}
