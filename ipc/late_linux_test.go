package ipc

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
	"github.com/purecuda/cuda/internal/testgpu"
)

// wires are the two ends of a connection.
func wires(t testing.TB) (a, b *wire) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends [2]*wire
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		ends[i] = newLink(c.(*net.UnixConn)).(*wire)
		t.Cleanup(ends[i].close)
	}
	return ends[0], ends[1]
}

// What has come by the deadline is read, however late the reader is: all of it, with its
// files, and the end.
func TestReadLate(t *testing.T) {
	leavesNothing(t)
	a, b := wires(t)
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	frame, err := encode(message{Type: typeLeave})
	require.NoError(t, err)
	b.readBy(time.Now().Add(-time.Second))
	_, _, err = b.read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	for i := range 6 {
		file := f
		if i%2 == 0 {
			file = nil
		}
		require.NoError(t, a.write(frame, file))
	}
	for i := range 6 {
		body, file, err := b.read()
		require.NoError(t, err)
		require.Equal(t, frame[4:], body)
		require.Equal(t, i%2 != 0, file != nil)
		if file != nil {
			closesOnExec(t, file)
			require.NoError(t, file.Close())
		}
	}
	_, _, err = b.read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, a.write(frame[:5], nil)) // a part of one
	_, _, err = b.read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	a, b = wires(t)
	require.NoError(t, a.write(frame, nil))
	a.close()
	b.readBy(time.Now().Add(-time.Second))
	_, _, err = b.read()
	require.NoError(t, err)
	_, _, err = b.read()
	require.Equal(t, io.EOF, err)
}

// A peer that never ends is not listened to for ever.
func TestReadLateFromOneThatGoesOn(t *testing.T) {
	leavesNothing(t)
	a, b := wires(t)
	frame, err := encode(message{Type: typeMessage, Name: "x", Payload: fmt.Appendf(nil, `"%4000d"`, 1)})
	require.NoError(t, err)
	b.readBy(time.Now().Add(-time.Second))
	for range 2 * lateLimit / len(frame) {
		require.NoError(t, a.write(frame, nil))
		if _, _, err = b.read(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// A reader that is late hears all that a peer had to say before it died.
func TestGoodbyeHeardLate(t *testing.T) {
	a, b := pair(t)
	a.mu.Lock()
	require.NoError(t, b.sendTo("x", nil, nil)) // with which the reader waits
	require.NoError(t, b.Session.Close())
	a.lose("it has died")
	a.link.readBy(time.Now()) // it will have passed when the reader goes on
	a.mu.Unlock()
	testgpu.Receive(t, a.Done())
	require.ErrorIs(t, a.Err(), ErrLeft)
}

// unwritable is a link on which nothing can be written, and what comes second is read
// when that has been noticed.
type unwritable struct {
	link
	reads   int
	noticed chan struct{}
}

func (u *unwritable) write([]byte, *os.File) error { return syscall.EPIPE }

func (u *unwritable) read() ([]byte, *os.File, error) {
	if u.reads++; u.reads == 2 {
		<-u.noticed
	}
	return u.link.read()
}

// A peer that lets go of everything and ends before this end could say so too leaves no
// connection behind.
func TestByeThatCannotBeAnswered(t *testing.T) {
	leavesNothing(t)
	a, b := wires(t)
	self, err := proc.Find(0)
	require.NoError(t, err)
	u, m := &unwritable{link: b, noticed: make(chan struct{})}, &mortal{}
	s, err := newSession(u, Credentials{PID: os.Getpid()}, self, self, m.processes())
	require.NoError(t, err)
	a.say(t, message{Type: typeLeave})
	a.say(t, message{Type: typeBye})
	a.close()
	is := func(f func() bool) {
		testgpu.WaitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return f() })
	}
	is(func() bool { return s.dying.rule != nil })
	close(u.noticed)
	is(func() bool { return s.broken })
	require.ErrorIs(t, s.Err(), ErrLeft)
}

// A context that ends when both have said hello does nothing to the session.
func TestDialInTime(t *testing.T) {
	leavesNothing(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path, nil)
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Dial(ctx, path, &Options{processes: &driver.Processes{Find: proc.Find, Watch: func(p driver.Process, dying, gone func()) (func(), error) {
		cancel()
		time.Sleep(testgpu.Soon)
		return proc.Processes.Watch(p, dying, gone)
	}}})
	require.NoError(t, err)
	peer, err := l.Accept(t.Context())
	require.NoError(t, err)
	testgpu.NotReady(t, s.Done())
	require.NoError(t, s.Close())
	testgpu.Receive(t, peer.Done())
	require.ErrorIs(t, peer.Err(), ErrLeft)
	require.NoError(t, peer.Close())

	// One that ends before that ends Dial too, though the hello has come.
	ctx, cancel = context.WithCancel(t.Context())
	_, err = Dial(ctx, path, &Options{Allow: func(Credentials) error {
		time.Sleep(testgpu.Soon)
		cancel()
		time.Sleep(testgpu.Soon)
		return nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, cuda.ErrPeerGone)
}
