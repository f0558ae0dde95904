package ipc

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/testgpu"
)

func TestStaleSocket(t *testing.T) {
	leavesNothing(t)
	path := filepath.Join(t.TempDir(), "s")
	alive, err := Listen(path, nil)
	require.NoError(t, err)
	_, err = Listen(path, nil)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "it lives")
	require.NoError(t, alive.Close())

	winner := listening(t, nil)
	for range 30 {
		leaveStale(t, path)
		require.NoError(t, winner.Close())
		winner = race(t, path)
	}
	go func() {
		if s, err := winner.Accept(context.Background()); err == nil {
			_ = s.Close()
		}
	}()
	s, err := Dial(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	// Close removes its own socket only.
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, winner.Close())
	require.FileExists(t, path)
	require.NoFileExists(t, path+".lock")
}

// Others can open a directory such as /tmp, and lock it: that is of no concern.
func TestLockedDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dir, err := os.Open(filepath.Dir(path))
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, syscall.Flock(int(dir.Fd()), syscall.LOCK_EX))
	leaveStale(t, path)
	l, err := Listen(path, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// Nothing is locked that others may have put where the lock should be. That is of concern
// for who replaces a stale socket only.
func TestForgedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	lock := path + ".lock"
	away := filepath.Join(filepath.Dir(path), "away")
	forgeries := map[string]func(){
		"link": func() { require.NoError(t, os.Symlink(away, lock)) },
		"open to others": func() {
			require.NoError(t, os.WriteFile(lock, nil, 0o600))
			require.NoError(t, os.Chmod(lock, 0o644))
		},
	}
	if os.Geteuid() == 0 {
		forgeries["another user's"] = func() {
			require.NoError(t, os.WriteFile(lock, nil, 0o600))
			require.NoError(t, os.Chown(lock, 65534, 65534))
		}
	}
	for name, forge := range forgeries {
		forge()
		l, err := Listen(path, nil)
		require.NoError(t, err, name)
		require.NoError(t, l.Close())
		leaveStale(t, path)
		_, err = Listen(path, nil)
		require.Error(t, err, name)
		require.NoFileExists(t, away)
		_, err = os.Lstat(lock)
		require.NoError(t, err, "it is not this user's to remove: %s", name)
		require.NoError(t, os.Remove(lock))
		l, err = Listen(path, nil)
		require.NoError(t, err, name)
		require.NoError(t, l.Close())
	}

	// One of this user's that died while it had the lock has left the file.
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	leaveStale(t, path)
	l, err := Listen(path, nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoFileExists(t, lock)
}

// A lock counts only as long as it has its name: the next would make another.
func TestRemovedLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	locks := func(f *os.File) bool {
		locked, err := tryLock("listen", f)
		require.NoError(t, err)
		return locked
	}
	old := open()
	require.NoError(t, os.Remove(name))
	require.False(t, locks(old))
	now := open()
	require.False(t, locks(old))
	require.True(t, locks(now))
	require.False(t, locks(open()), "it is locked already")
}

// A listener that is being closed is not stale: what takes its place stays.
func TestReplacedWhileClosing(t *testing.T) {
	leavesNothing(t)
	path := filepath.Join(t.TempDir(), "s")
	for range 100 {
		old, err := Listen(path, nil)
		require.NoError(t, err)
		closed := testgpu.Go(old.Close)
		var l *Listener
		for l == nil {
			if l, err = Listen(path, nil); err != nil {
				require.ErrorIs(t, err, syscall.EADDRINUSE)
			}
		}
		require.NoError(t, testgpu.Receive(t, closed))
		_, err = os.Lstat(path)
		require.NoError(t, err, "the socket of the living one")
		require.NoError(t, l.Close())
	}
}

// leaveStale puts the socket of a dead listener at path.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	_ = os.Remove(path)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
}

// race has several listen at path at the same time: one gets it, and keeps it.
func race(t *testing.T, path string) (winner *Listener) {
	t.Helper()
	results := make(chan *Listener, 10)
	for range cap(results) {
		go func() {
			l, err := Listen(path, nil)
			if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				t.Error(err)
			}
			results <- l
		}()
	}
	for range cap(results) {
		if l := testgpu.Receive(t, results); l != nil {
			require.Nil(t, winner, "two listeners")
			winner = l
		}
	}
	require.NotNil(t, winner)
	return winner
}
