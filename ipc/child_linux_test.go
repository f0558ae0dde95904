package ipc

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

const socketVariable, roleVariable = "PURECUDA_TEST_IPC_SOCKET", "PURECUDA_TEST_IPC_ROLE"

// executable is this program, wherever the child is started.
func executable(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func startChild(t *testing.T, program, path, role string, attr *syscall.SysProcAttr) *testgpu.Child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), socketVariable+"="+path, roleVariable+"="+role)
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	return testgpu.StartChild(t, cmd)
}

// kill sends SIGKILL, and returns when that was.
func kill(t testing.TB, c *testgpu.Child) time.Time {
	t.Helper()
	killed := time.Now()
	require.NoError(t, c.Cmd.Process.Signal(syscall.SIGKILL))
	return killed
}

// TestChild is what the children run.
func TestChild(t *testing.T) {
	path, role := os.Getenv(socketVariable), os.Getenv(roleVariable)
	if path == "" {
		t.Skip("runs as the child of other tests")
	}
	untilTold := func() { _, _ = io.Copy(io.Discard, os.Stdin) }
	var s *Session
	var err error
	if role == "listen" {
		l, listenErr := Listen(path, nil)
		require.NoError(t, listenErr)
		defer l.Close()
		testgpu.Say("listening")
		s, err = l.Accept(t.Context())
	} else {
		opts := new(Options)
		if role == "try anyone" {
			opts.Allow = func(Credentials) error { return nil }
		}
		s, err = Dial(t.Context(), path, opts)
	}
	switch role {
	case "try", "try anyone":
		testgpu.Say("%v", err)
		if err == nil {
			require.NoError(t, s.Close())
		}
		return
	case "exit":
		require.NoError(t, err)
		require.NoError(t, s.Close())
		os.Exit(0)
	}
	require.NoError(t, err)
	testgpu.Say("connected")
	if role == "offer" {
		e := newEnd(t, cudatest.New(cudatest.Config{}))
		x := e.memory(t, 1)
		require.NoError(t, s.Offer("x", x))
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, s.sendTo("pipe", []byte(`"here it is"`), r))
		fmt.Fprint(w, "by the way of a pipe")
		require.NoError(t, w.Close())
		require.NoError(t, r.Close())
		untilTold()
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, x.Close())
		return
	}
	untilTold()
	require.NoError(t, s.Close())
}

// acceptChild starts a child that dials.
func acceptChild(t *testing.T, role string) (*testgpu.Child, *Session) {
	l := listening(t, nil)
	c := startChild(t, executable(t), l.path, role, nil)
	s, err := l.Accept(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, Credentials{c.Cmd.Process.Pid, uint32(os.Geteuid()), uint32(os.Getegid())}, s.Peer())
	require.Contains(t, s.String(), fmt.Sprint(c.Cmd.Process.Pid))
	return c, s
}

// dialChild starts a child that listens.
func dialChild(t *testing.T) (*testgpu.Child, *Session) {
	path := filepath.Join(t.TempDir(), "s")
	c := startChild(t, executable(t), path, "listen", nil)
	require.Equal(t, "listening", c.Says())
	s, err := Dial(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, c.Cmd.Process.Pid, s.Peer().PID)
	return c, s
}

func TestKilledChild(t *testing.T) {
	for role, start := range map[string]func(t *testing.T) (*testgpu.Child, *Session){
		"dials":   func(t *testing.T) (*testgpu.Child, *Session) { return acceptChild(t, "dial") },
		"listens": dialChild,
	} {
		t.Run(role, func(t *testing.T) {
			leavesNothing(t)
			c, s := start(t)
			require.Equal(t, "connected", c.Says())
			gpu := cudatest.New(cudatest.Config{})
			e := newEnd(t, gpu)
			x := e.memory(t, 1)
			require.NoError(t, s.Offer("x", x))
			require.NoError(t, x.Close())
			testgpu.NotReady(t, s.Done())

			killed := kill(t, c)
			testgpu.Receive(t, s.Done())
			late := time.Since(killed)
			t.Logf("noticed after %v: %v", late, s.Err())
			require.Less(t, late, time.Second)
			require.ErrorIs(t, s.Err(), cuda.ErrPeerGone)
			// As long as nobody waits for it, the process is a zombie.
			go func() { _ = c.Cmd.Wait() }()
			require.NoError(t, s.Withdraw(t.Context(), "x"))
			require.NoError(t, s.Shutdown(t.Context()))
			require.NoError(t, e.stream.Close())
			gpu.Check(t)
		})
	}
}

// A process that closes its session and exits at once has left.
func TestChildLeaves(t *testing.T) {
	for range 5 {
		c, s := acceptChild(t, "exit")
		testgpu.Receive(t, s.Done())
		require.ErrorIs(t, s.Err(), ErrLeft)
		c.End()
	}
}

func TestChildOffers(t *testing.T) {
	leavesNothing(t)
	c, s := acceptChild(t, "offer")
	in, stop := mailbox(t, s, "pipe")
	defer stop()
	l := testgpu.Receive(t, in)
	require.Equal(t, `"here it is"`, l.text)
	text, err := io.ReadAll(l.file)
	require.NoError(t, err)
	require.Equal(t, "by the way of a pipe", string(text))
	require.NoError(t, l.file.Close())

	// The child's simulated GPU is another machine's.
	e := newEnd(t, cudatest.New(cudatest.Config{}))
	defer e.stream.Close()
	_, err = Buffer[float32](t.Context(), s, e.drv, "x")
	require.ErrorIs(t, err, cuda.ErrUnreachable)
	require.ErrorContains(t, err, `session buffer "x"`)
	require.Zero(t, s.attachedNow())
	c.End()
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), ErrLeft)
}

// Another user gets no further than the socket's mode, and if that is opened, no
// further than the handshake.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	leavesNothing(t)
	dir, err := os.MkdirTemp("", "ipc")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "test")
	text, err := os.ReadFile(executable(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	path := filepath.Join(dir, "s")
	l, err := Listen(path, nil)
	require.NoError(t, err)
	defer l.Close()
	try := func(role string) string {
		c := startChild(t, program, path, role, nobody)
		defer c.End()
		return c.Says()
	}
	require.Contains(t, try("try"), fs.ErrPermission.Error())
	require.NoError(t, os.Chmod(path, 0o666))
	require.Contains(t, try("try"), "user 0 is not user 65534", "it looks whose socket it is")

	require.Contains(t, try("try anyone"), "user 65534 is not user 0", "the listener looks, too")
	_, err = l.Accept(within(t, testgpu.Soon))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, l.Close())

	l, err = Listen(path, &Options{Allow: func(c Credentials) error {
		if c.UID != 65534 {
			return fs.ErrPermission
		}
		return nil
	}})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Chmod(path, 0o666))
	require.Equal(t, "<nil>", try("try anyone"))
}

// Processes of two PID namespaces are refused at both ends, whichever is the outer one.
func TestOtherPIDNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	leavesNothing(t)
	inside := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	l := listening(t, nil)
	c := startChild(t, executable(t), l.path, "try", inside)
	require.Contains(t, c.Says(), "outside of the PID namespace")
	c.End()
	_, err := l.Accept(within(t, testgpu.Soon))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	path := filepath.Join(t.TempDir(), "s")
	c = startChild(t, executable(t), path, "listen", inside)
	require.Equal(t, "listening", c.Says())
	_, err = Dial(t.Context(), path, nil)
	require.ErrorIs(t, err, cuda.ErrUnreachable)
	require.ErrorContains(t, err, "outside of the PID namespace")
	kill(t, c)
	_ = c.Cmd.Wait()
}
