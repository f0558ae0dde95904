package ipc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A peer that is killed before it has read all resets the connection. That is reported as
// what it is, and not by the path that the socket had while it was made.
func TestResetConnection(t *testing.T) {
	leavesNothing(t)
	s, w := stranger(t, &mortal{})
	require.NoError(t, s.sendTo("x", nil, nil))
	testgpu.WaitUntil(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.queue.idle() })
	w.close()
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), cuda.ErrPeerGone)
	require.NotErrorIs(t, s.Err(), ErrProtocol)
	require.EqualError(t, s.Err(), fmt.Sprintf("cuda: session: %v: process %d has closed the connection without a goodbye", cuda.ErrPeerGone, os.Getpid()))
}

func TestParted(t *testing.T) {
	failed := func(op string, err error) error {
		at := &net.UnixAddr{Name: "/tmp/.s1710996972/s", Net: "unix"}
		return &net.OpError{Op: op, Net: "unix", Source: at, Addr: at, Err: err}
	}
	const hungUp = "process 7 has closed the connection without a hello"
	for _, test := range []struct {
		err  error
		says string
	}{
		{io.EOF, hungUp},
		{io.ErrUnexpectedEOF, hungUp},
		{failed("read", os.NewSyscallError("read", syscall.ECONNRESET)), hungUp},
		{failed("write", os.NewSyscallError("write", syscall.EPIPE)), hungUp},
		{errors.Join(failed("write", syscall.EPIPE), io.EOF), hungUp},
		{failed("write", os.ErrDeadlineExceeded), "process 7 has not read for 10s what was sent to it"},
		{failed("read", os.NewSyscallError("recvmsg", syscall.ENOMEM)), "the connection to process 7 is broken: recvmsg: cannot allocate memory"},
		{errors.New("unknown"), "the connection to process 7 is broken: unknown"},
	} {
		require.Equal(t, test.says, parted(7, test.err, "hello"))
	}
}
