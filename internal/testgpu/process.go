package testgpu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
)

// Child is another process, which prints lines for its parent.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // its input, nil if the command had one

	t     testing.TB
	lines *bufio.Scanner
	out   io.Reader
}

// StartChild starts a command as a child. A test that needs rights which this process does
// not have is skipped.
func StartChild(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	c := &Child{Cmd: cmd, t: t}
	cmd.Stderr = os.Stderr
	var err error
	if cmd.Stdin == nil {
		c.In, err = cmd.StdinPipe()
		require.NoError(t, err)
	}
	c.out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	c.lines = bufio.NewScanner(c.out)
	err = cmd.Start()
	if cmd.SysProcAttr != nil && errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return c
}

// StartSelf starts this test binary as a child that runs one test, with variables added to
// its environment.
func StartSelf(t testing.TB, test string, environment ...string) *Child {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), environment...)
	return StartChild(t, cmd)
}

// Say prints a line for the parent.
func Say(format string, args ...any) { fmt.Printf(childPrefix+format+"\n", args...) }

const childPrefix = "child: "

// Says returns the child's next line for its parent.
func (c *Child) Says() string {
	c.t.Helper()
	for c.lines.Scan() {
		if text, ok := strings.CutPrefix(c.lines.Text(), childPrefix); ok {
			return text
		}
	}
	c.t.Fatal("the child has ended")
	return ""
}

// End closes the child's input, and waits for its end, which must be a success.
func (c *Child) End() {
	c.t.Helper()
	if c.In != nil {
		require.NoError(c.t, c.In.Close())
	}
	_, _ = io.Copy(io.Discard, c.out)
	require.NoError(c.t, c.Cmd.Wait())
}

// A process in which a kernel has trapped cannot use the device any more, so tests of that
// on a real device run in a process of their own.
const trapVariable = "PURECUDA_TEST_TRAP"

// InAnotherProcess runs a test whose body is [Trapped].
func InAnotherProcess(t *testing.T, test string) {
	RealDriver(t)
	child := StartSelf(t, test, trapVariable+"=1")
	require.Equal(t, "passed", child.Says())
	child.End()
}

// Trapped calls f with a real device and a function that makes a kernel on a stream trap.
func Trapped(t *testing.T, f func(t *testing.T, d *cuda.Device, fail func(*cuda.Stream))) {
	if os.Getenv(trapVariable) == "" {
		t.Skip("runs in a process of its own")
	}
	d, err := RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte(kernels.PTX)) // which cannot be unloaded afterwards
	require.NoError(t, err)
	trap := Kernel(t, m, "purecuda_trap")
	f(t, d, func(s *cuda.Stream) { require.NoError(t, trap.Launch(s, cuda.Grid1D(1, 1))) })
	if !t.Failed() {
		Say("passed")
	}
}
