package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/proc"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestListenPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(filepath.Join(dir, "away"), link))
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	for _, test := range []struct {
		path string
		is   error
		says string
	}{
		{"", cuda.ErrInvalid, "no path"},
		{"@name", cuda.ErrInvalid, "any user could connect"},
		{"\x00name", cuda.ErrInvalid, "any user could connect"},
		{"a\x00b", cuda.ErrInvalid, "no path"},
		{filepath.Join(dir, strings.Repeat("x", 120)), cuda.ErrInvalid, "can have 107 bytes"},
		{filepath.Join(dir, "none", "s"), fs.ErrNotExist, "none"},
		{filepath.Join(file, "s"), cuda.ErrInvalid, "not a directory"},
		{file, fs.ErrExist, "not a socket"},
		{link, fs.ErrExist, "not a socket"},
		{filepath.Join(open, "s"), fs.ErrPermission, "others can write"},
	} {
		l, err := Listen(test.path, nil)
		require.Nil(t, l)
		require.ErrorIs(t, err, test.is, test.path)
		require.ErrorContains(t, err, test.says)
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))

	require.NoError(t, os.Chmod(open, 0o777|fs.ModeSticky))
	l, err := Listen(filepath.Join(open, "s"), nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, d := range []string{dir, open} {
		left, err := filepath.Glob(filepath.Join(d, ".s*"))
		require.NoError(t, err)
		require.Empty(t, left, "private directories")
	}

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(open, 65534, 65534))
		require.NoError(t, os.Chmod(open, 0o755))
		_, err := Listen(filepath.Join(open, "s"), nil)
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "belongs to user 65534")
	}
	_, err = Dial(t.Context(), "@name", nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = Dial(t.Context(), filepath.Join(dir, "none"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// The socket is this user's alone from the first moment on, whatever the umask.
func TestSocketMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for !isClosed(stop) {
			if info, err := os.Lstat(path); err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
				return
			}
		}
	})
	for range 50 {
		l, err := Listen(path, nil)
		require.NoError(t, err)
		require.Equal(t, path, l.Addr().String())
		require.NoError(t, l.Close())
		require.NoError(t, l.Close(), "closing again")
		require.NoFileExists(t, path)
	}
	close(stop)
	watching.Wait()
}

func TestAcceptAndDialEnd(t *testing.T) {
	leavesNothing(t)
	l := listening(t, nil)
	_, err := l.Accept(within(t, testgpu.Soon))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	result := testgpu.Go(func() error { _, err := l.Accept(context.Background()); return err })
	testgpu.NotReady(t, result)
	require.NoError(t, l.Close())
	require.ErrorIs(t, testgpu.Receive(t, result), cuda.ErrClosed)

	// A socket that nobody accepts from: the hello does not come.
	path := filepath.Join(t.TempDir(), "s")
	deaf, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer deaf.Close()
	_, err = Dial(within(t, testgpu.Soon), path, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "has not said hello")
}

// Peers whose sessions were not accepted when the listener is closed get that error.
func TestCloseBeforeAccept(t *testing.T) {
	leavesNothing(t)
	for range 20 {
		l := listening(t, nil)
		s, err := Dial(t.Context(), l.path, nil)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		testgpu.Receive(t, s.Done())
		require.ErrorIs(t, s.Err(), ErrLeft)
		require.NoError(t, s.Shutdown(t.Context()))
	}
}

// Allow may close the listener, and Close does not wait for one that takes its time.
func TestCloseFromAllow(t *testing.T) {
	leavesNothing(t)
	made, closed, goOn := make(chan *Listener, 1), make(chan error, 1), make(chan struct{})
	l := listening(t, &Options{Allow: func(Credentials) error {
		closed <- (<-made).Close()
		<-goOn
		return nil
	}})
	made <- l
	dialed := testgpu.Go(func() error { _, err := Dial(context.Background(), l.path, nil); return err })
	require.NoError(t, testgpu.Receive(t, closed))
	require.NoError(t, testgpu.Receive(t, testgpu.Go(l.Close)), "closing again")
	require.NoFileExists(t, l.path)
	testgpu.NotReady(t, dialed)
	close(goOn)
	require.ErrorIs(t, testgpu.Receive(t, dialed), ErrLeft)
	_, err := l.Accept(t.Context())
	require.ErrorIs(t, err, cuda.ErrClosed)
}

// A refusal can be as long as it likes: the dialer gets the beginning.
func TestLongRefusal(t *testing.T) {
	leavesNothing(t)
	l := listening(t, &Options{Allow: func(Credentials) error {
		return errors.New("not on a Sunday" + strings.Repeat("!", 100<<10))
	}})
	_, err := Dial(t.Context(), l.path, nil)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "not on a Sunday!!!")
	require.Less(t, len(err.Error()), 2*textLimit)
}

func TestRefusal(t *testing.T) {
	leavesNothing(t)
	no := errors.New("not on a Sunday")
	var seen Credentials
	refuse := &Options{Allow: func(c Credentials) error { seen = c; return no }}
	l := listening(t, refuse)
	_, err := Dial(t.Context(), l.path, nil)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "not on a Sunday")
	require.ErrorContains(t, err, "says")
	require.NoError(t, l.Close())
	require.Equal(t, Credentials{os.Getpid(), uint32(os.Geteuid()), uint32(os.Getegid())}, seen)

	// The dialer looks whose socket it is, too.
	l = listening(t, nil)
	_, err = Dial(t.Context(), l.path, refuse)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorIs(t, err, no)
	require.EqualError(t, err, fmt.Sprintf("cuda: dial %q: refused: process %d: not on a Sunday", l.path, os.Getpid()))
	_, err = l.Accept(within(t, testgpu.Soon))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// A process outside of the PID namespace has no number.
	_, code, err := greet("accept", nil, Credentials{}, new(Options).orDefault(), nil)
	require.ErrorIs(t, err, cuda.ErrUnreachable)
	require.ErrorContains(t, err, "PID namespace")
	require.Equal(t, codeUnreachable, code)

	require.NoError(t, sameUser(Credentials{UID: uint32(os.Geteuid())}))
	require.Error(t, sameUser(Credentials{UID: uint32(os.Geteuid() + 1)}))
}

// Whoever sends garbage or nothing is dropped with the reason; meanwhile others are served.
func TestBadGuests(t *testing.T) {
	leavesNothing(t)
	l := listening(t, &Options{patience: time.Second})
	var all sync.WaitGroup
	guest := func(hello string, says string) {
		all.Go(func() {
			c, err := net.Dial("unix", l.path)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			w := newLink(c.(*net.UnixConn))
			if _, err := c.Write([]byte(hello)); err != nil {
				t.Error(err)
			}
			var last message
			for {
				body, _, err := w.read()
				if err != nil {
					break
				}
				last, _ = decode(body)
			}
			if last.Type != typeError || !strings.Contains(last.Text, says) {
				t.Errorf("%.40q received %q, and not %q", hello, last.Text, says)
			}
		})
	}
	frame := func(m message) string { b, _ := encode(m); return string(b) }
	guest("", "in time")
	guest("\x10\x00\x00\x00{", "in time")
	guest("GET / HTTP/1.0\r\n\r\n", "bytes, more than 65536")
	guest("\x01\x00\x00\x00{", "not JSON")
	guest("\x00\x00\x00\x00", "not JSON")
	guest(frame(message{Type: typeLeave}), "before its hello")
	guest(frame(message{Type: typeHello, Version: 2}), "version 2")
	guest(frame(message{Type: typeHello, Version: 1}), "of whom")
	guest(frame(message{Type: typeHello, Version: 1, Process: &identity{PID: 1}}), "PID namespace")
	self, err := proc.Find(0)
	require.NoError(t, err)
	reborn := identityOf(self)
	reborn.Start++
	guest(frame(message{Type: typeHello, Version: 1, Process: &reborn}), "not the one that made the connection")
	silentGuest, err := net.Dial("unix", l.path)
	require.NoError(t, err)
	defer silentGuest.Close()

	for range 3 {
		begin := time.Now()
		result := testgpu.Go(func() error {
			s, err := Dial(context.Background(), l.path, nil)
			if err == nil {
				err = s.Close()
			}
			return err
		})
		s, err := l.Accept(t.Context())
		require.NoError(t, err)
		require.NoError(t, testgpu.Receive(t, result))
		require.Less(t, time.Since(begin), 900*time.Millisecond)
		require.NoError(t, s.Close())
	}
	all.Wait()
}
