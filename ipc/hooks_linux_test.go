package ipc

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

type letter struct {
	text string
	file *os.File
}

// mailbox receives from a channel.
func mailbox(t testing.TB, s *Session, channel string) (<-chan letter, func()) {
	t.Helper()
	c := make(chan letter, 10000)
	stop, err := s.receiver(channel, func(payload []byte, file *os.File) { c <- letter{string(payload), file} })
	require.NoError(t, err)
	return c, stop
}

func quoted(i int) []byte { return fmt.Appendf(nil, `"%d"`, i) }

func TestMessages(t *testing.T) {
	a, b := pair(t)
	for i := range 3 {
		require.NoError(t, a.sendTo("one", quoted(i), nil))
	}
	require.NoError(t, a.sendTo("two", nil, nil))
	one, stop := mailbox(t, b.Session, "one")
	for i := range 3 {
		require.Equal(t, string(quoted(i)), testgpu.Receive(t, one).text)
	}
	two, _ := mailbox(t, b.Session, "two")
	require.Equal(t, letter{}, testgpu.Receive(t, two))

	// A burst, of more than anybody queues.
	for i := range 3000 {
		require.NoError(t, a.sendTo("one", quoted(i), nil))
	}
	for i := range 3000 {
		require.Equal(t, string(quoted(i)), testgpu.Receive(t, one).text)
	}

	// After stop they wait for the next receiver.
	stop()
	stop()
	require.NoError(t, a.sendTo("one", []byte(`{"a": "<&>  "}`), nil))
	testgpu.NotReady(t, one)
	one, _ = mailbox(t, b.Session, "one")
	require.Equal(t, `{"a":"<&>  "}`, testgpu.Receive(t, one).text)
	testgpu.NotReady(t, two)

	_, err := b.receiver("one", nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = b.receiver("", nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	for _, payload := range []string{"{", "x", `"` + strings.Repeat("x", payloadLimit) + `"`} {
		require.ErrorIs(t, a.sendTo("one", []byte(payload), nil), cuda.ErrInvalid)
	}
	require.ErrorIs(t, a.sendTo("", nil, nil), cuda.ErrInvalid)
	require.NoError(t, a.sendTo("one", []byte(`"`+strings.Repeat("x", payloadLimit-2)+`"`), nil))
	require.Len(t, testgpu.Receive(t, one).text, payloadLimit)
	require.NoError(t, b.Session.Close())
	_, err = b.receiver("one", nil)
	require.ErrorIs(t, err, cuda.ErrClosed)
}

// Files arrive with the message that they were sent with, among others, small and large.
func TestFiles(t *testing.T) {
	collects := debug.SetGCPercent(-1) // it would close what is forgotten
	t.Cleanup(func() { debug.SetGCPercent(collects) })
	a, b := pair(t)
	in, _ := mailbox(t, b.Session, "files")
	dir := t.TempDir()
	for i := range 200 {
		if i%3 != 0 {
			require.NoError(t, a.sendTo("files", fmt.Appendf(nil, `"%d%s"`, i, strings.Repeat(" ", i*20%4000)), nil))
			continue
		}
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		_, err = f.WriteAt(quoted(i), 0)
		require.NoError(t, err)
		testgpu.WaitUntil(t, func() bool { err = a.sendTo("files", quoted(i), f); return err == nil })
		require.NoError(t, f.Close(), "the duplicate stays")
	}
	for i := range 200 {
		l := testgpu.Receive(t, in)
		require.Contains(t, l.text, fmt.Sprint(i))
		require.Equal(t, i%3 == 0, l.file != nil, "message %d", i)
		if l.file == nil {
			continue
		}
		text, err := io.ReadAll(io.NewSectionReader(l.file, 0, 100))
		require.NoError(t, err)
		require.Equal(t, string(quoted(i)), string(text))
		closesOnExec(t, l.file)
		require.NoError(t, l.file.Close())
	}

	// What nobody takes is closed, at the latest by Close.
	f, err := os.CreateTemp(dir, "")
	require.NoError(t, err)
	twin, err := duplicate(f)
	require.NoError(t, err)
	closesOnExec(t, twin)
	require.NoError(t, twin.Close())
	require.NoError(t, a.sendTo("nobody", nil, f))
	require.NoError(t, a.sendTo("files", nil, nil))
	testgpu.Receive(t, in)
	require.NoError(t, b.Session.Close())
	testgpu.Receive(t, a.Done())
	require.Error(t, a.sendTo("late", nil, f))
	require.NoError(t, f.Close())
	require.ErrorContains(t, a.sendTo("files", nil, f), "closed file")
}

func closesOnExec(t *testing.T, f *os.File) {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	require.NotZero(t, flags&syscall.FD_CLOEXEC)
}

func TestUnclaimedMessages(t *testing.T) {
	a, b := pair(t)
	for i := range unclaimedLimit {
		require.NoError(t, a.sendTo("a", quoted(i), nil))
	}
	for i := range unclaimedLimit {
		require.NoError(t, a.sendTo("b", quoted(i), nil))
	}
	in, _ := mailbox(t, b.Session, "a")
	for range unclaimedLimit {
		testgpu.Receive(t, in)
	}
	require.NoError(t, b.Err())
	require.NoError(t, a.sendTo("b", nil, nil))
	testgpu.Receive(t, b.Done())
	require.ErrorIs(t, b.Err(), ErrProtocol)
	testgpu.Receive(t, a.Done())
	require.ErrorIs(t, a.Err(), ErrProtocol)
	require.ErrorContains(t, a.Err(), `more than 64 messages for "b"`)
	a.peers.gone()
	b.peers.gone()
}

// A receiver that is slow makes the peer wait, and then refuse; it makes nobody fail.
func TestSlowReceiver(t *testing.T) {
	a, b := pair(t)
	release := make(chan struct{})
	got := make(chan string, 100000)
	_, err := b.receiver("a", func(payload []byte, _ *os.File) {
		<-release
		got <- string(payload)
	})
	require.NoError(t, err)
	big := []byte(`"` + strings.Repeat("x", 4000) + `"`)
	sent := 0
	for ; err == nil; sent++ {
		require.Less(t, sent, 10000)
		err = a.sendTo("a", big, nil)
	}
	require.ErrorIs(t, err, errNotReading)
	close(release)
	for range sent - 1 {
		require.Len(t, testgpu.Receive(t, got), len(big))
	}
	require.NoError(t, a.Err())
	require.NoError(t, b.Err())
}

// A dead peer's messages that have come are not waited with.
func TestDeathBehindASlowReceiver(t *testing.T) {
	a, b := pair(t)
	release := make(chan struct{})
	_, err := b.receiver("a", func([]byte, *os.File) { <-release })
	require.NoError(t, err)
	for i := range 4 * pendingLimit {
		require.NoError(t, a.sendTo("a", quoted(i), nil))
	}
	testgpu.WaitUntil(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.channels.overflowing() })
	b.peers.die()
	testgpu.Receive(t, b.Done())
	require.ErrorIs(t, b.Err(), cuda.ErrPeerGone)
	close(release)
	b.peers.gone()
	a.peers.gone()
}
