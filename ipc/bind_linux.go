package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/purecuda/cuda"
)

// pathLimit is how many bytes the path of a socket has at most.
const pathLimit = 107

// bind makes the socket. It is made in a new directory that is this user's alone, gets
// its mode, and only then its name.
func bind(op, path string) (_ *net.UnixListener, _ os.FileInfo, err error) {
	fail := func(err error) (*net.UnixListener, os.FileInfo, error) {
		return nil, nil, &cuda.Error{Op: op, Err: err}
	}
	dir := filepath.Dir(path)
	if err := checkDirectory(op, dir); err != nil {
		return nil, nil, err
	}
	private, err := os.MkdirTemp(dir, ".s")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s")
	if n := max(len(path), len(made)); n > pathLimit {
		return nil, nil, invalid(op, "the path of a socket can have %d bytes, and this needs %d: %s", pathLimit, n, path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(made, 0o600); err != nil {
		return fail(err)
	}
	info, err := os.Lstat(made)
	if err != nil {
		return fail(err)
	}
	err = os.Link(made, path)
	if errors.Is(err, fs.ErrExist) {
		if err = replaceStale(op, made, path); err != nil {
			return nil, nil, err
		}
	}
	if err != nil {
		return fail(err)
	}
	return l, info, nil
}

// checkDirectory refuses a directory in which others could replace the socket.
func checkDirectory(op, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return &cuda.Error{Op: op, Err: err}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return invalid(op, "%s is not a directory", dir)
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
		return &cuda.Error{Op: op, Err: fs.ErrPermission, Detail: fmt.Sprintf("directory %s belongs to user %d, who could replace the socket; use one of your own", dir, stat.Uid)}
	case info.Mode()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return &cuda.Error{Op: op, Err: fs.ErrPermission, Detail: fmt.Sprintf("others can write to directory %s and could replace the socket (its mode is %v); take that away, or use one of your own", dir, info.Mode())}
	}
	return nil
}

// replaceStale gives the socket that was made the name of one that a dead process has
// left. It is the only one to do that at the time, so what it finds to be stale is that
// still when it is removed: sockets of the living go only by their own Close.
func replaceStale(op, made, path string) error {
	if err := checkStale(op, path); err != nil {
		return err
	}
	lock, err := lockStale(op, path+".lock")
	if err != nil {
		return err
	}
	defer func() {
		_ = os.Remove(lock.Name()) // before others can lock it
		lock.Close()
	}()
	for {
		err := os.Link(made, path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return &cuda.Error{Op: op, Err: err}
		}
		if err := checkStale(op, path); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &cuda.Error{Op: op, Err: err}
		}
	}
}

// checkStale returns nil if what is at path is the socket of a listener that is dead, or
// nothing any more.
func checkStale(op, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &cuda.Error{Op: op, Err: err}
	case info.Mode().Type() != fs.ModeSocket:
		return &cuda.Error{Op: op, Err: fs.ErrExist, Detail: path + " is there, and is not a socket"}
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &cuda.Error{Op: op, Err: syscall.EADDRINUSE, Detail: "another process listens at " + path} // or it is another user's
}

// lockStale makes and locks a file that is this user's alone: with what others can open
// too, such as the directory, they could keep it locked. Who has the lock removes it.
func lockStale(op, name string) (_ *os.File, err error) {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, &cuda.Error{Op: op, Err: err, Detail: "a stale socket cannot be replaced without a lock"}
		}
		locked, err := tryLock(op, f)
		if locked {
			return f, nil
		}
		f.Close()
		switch {
		case err != nil:
			return nil, err
		case time.Now().After(deadline):
			return nil, &cuda.Error{Op: op, Err: syscall.EWOULDBLOCK, Detail: "another process of this user has locked " + name}
		}
	}
}

// tryLock reports whether f is locked now and still what its name stands for.
func tryLock(op string, f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, &cuda.Error{Op: op, Err: err}
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return false, &cuda.Error{Op: op, Err: fs.ErrPermission, Detail: f.Name() + " is not this user's alone; remove it, or use another path"}
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, &cuda.Error{Op: op, Err: os.NewSyscallError("flock", err)}
	}
	now, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(now, info), nil
}

// connect connects to a socket. While too many others do, it waits.
func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
