package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/purecuda/cuda"
)

// Listener is a socket that other processes can [Dial].
type Listener struct {
	path   string
	file   os.FileInfo // of the socket
	net    *net.UnixListener
	opts   *Options
	ready  chan *Session
	places chan struct{} // taken by those who are not accepted yet
	ctx    context.Context
	close  func() error
	served chan struct{} // closed when nothing more is accepted
}

// waiting is how many processes may be between their dialing and their acceptance;
// others wait in the kernel.
const waiting = 64

// Listen makes a socket in the file system. It is this user's alone (mode 0600) from its
// first moment on. The directory must belong to this user or root, and nobody else may
// be able to replace files in it: if others can write there it must have the sticky
// bit, as /tmp has. A socket that a dead process has left behind is replaced, that of a
// living one is an error. Names in Linux's abstract space, such as "@name", are refused:
// they have no owner, and anybody on the machine, and in the network namespace, could
// connect, or be there first. A nil opts means the defaults. Sessions between processes
// are there on Linux only; elsewhere the error matches errors.ErrUnsupported.
func Listen(path string, opts *Options) (*Listener, error) {
	const op = "listen"
	if err := checkPath(op, path); err != nil {
		return nil, err
	}
	n, file, err := bind(op, path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		path:   path,
		file:   file,
		net:    n,
		opts:   opts.orDefault(),
		ready:  make(chan *Session),
		places: make(chan struct{}, waiting),
		ctx:    ctx,
		served: make(chan struct{}),
	}
	l.close = sync.OnceValue(func() error {
		cancel()
		var err error
		// While it is alive nobody takes it for stale and puts another in its place.
		if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.file) {
			err = os.Remove(l.path)
		}
		err = errors.Join(err, l.net.Close())
		<-l.served
		if err != nil {
			return &cuda.Error{Op: "listener close", Err: err}
		}
		return nil
	})
	go l.serve()
	return l, nil
}

func checkPath(op, path string) error {
	switch {
	case path == "" || strings.ContainsRune(path, 0) && path[0] != 0:
		return invalid(op, "%q is no path", path)
	case path[0] == '@' || path[0] == 0:
		return invalid(op, "%q is an abstract socket, to which any user could connect; use a file (a file that is so called is ./%s)", path, strings.TrimLeft(path, "\x00"))
	}
	return nil
}

// Accept waits for a process to dial, and returns the session with it. Processes that
// are not allowed, do not say hello in time, within 5 seconds, or do not keep to the
// protocol are told so and dropped; Accept goes on waiting. After Close the error
// matches [cuda.ErrClosed].
func (l *Listener) Accept(ctx context.Context) (*Session, error) {
	const op = "accept"
	if err := l.usable(op); err != nil {
		return nil, err
	}
	select {
	case s := <-l.ready:
		return s, nil
	case <-l.ctx.Done():
		return nil, &cuda.Error{Op: op, Err: cuda.ErrClosed}
	case <-ctx.Done():
		return nil, &cuda.Error{Op: op, Err: ctx.Err(), Detail: "nobody has dialed " + l.path}
	}
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr {
	a := &net.UnixAddr{Net: "unix"}
	if l.made() {
		a.Name = l.path
	}
	return a
}

// Close ends the listening, and removes the socket. Sessions that were accepted go on;
// those that were not yet are told that this end has left. It does not wait for that,
// nor for [Options.Allow], which may call it. Closing again does nothing.
func (l *Listener) Close() error {
	if !l.made() {
		return nil
	}
	return l.close()
}

// serve accepts connections until the listener is closed.
func (l *Listener) serve() {
	defer close(l.served)
	for failed := time.Duration(0); ; {
		select {
		case l.places <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		c, err := l.net.AcceptUnix()
		if err != nil { // closed, or this process has too many files for now
			<-l.places
			failed = min(max(2*failed, time.Millisecond), time.Second)
			select {
			case <-time.After(failed):
			case <-l.ctx.Done():
				return
			}
			continue
		}
		failed = 0
		go l.meet(c)
	}
}

// meet makes a session of a connection and hands it to Accept.
func (l *Listener) meet(c *net.UnixConn) {
	defer func() { <-l.places }()
	peer, err := credentials(c)
	if err != nil {
		c.Close()
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.opts.patience)
	defer cancel()
	s, err := meet(ctx, "accept", newLink(c), peer, l.opts)
	if err != nil {
		return
	}
	select {
	case l.ready <- s: // even if it is over already
	case <-l.ctx.Done():
		_ = s.Close()
	}
}

// Dial connects to the socket of a process that listens at path, and checks as that does
// who is at the other end. It waits for the listener's hello until ctx ends. A nil opts
// means the defaults. Sessions between processes are there on Linux only; elsewhere the
// error matches errors.ErrUnsupported.
func Dial(ctx context.Context, path string, opts *Options) (*Session, error) {
	op := fmt.Sprintf("dial %q", path)
	if err := checkPath("dial", path); err != nil {
		return nil, err
	}
	c, err := connect(ctx, path)
	if err != nil {
		return nil, &cuda.Error{Op: op, Err: err}
	}
	peer, err := credentials(c)
	if err != nil {
		c.Close()
		return nil, &cuda.Error{Op: op, Err: err}
	}
	return meet(ctx, op, newLink(c), peer, opts.orDefault())
}
