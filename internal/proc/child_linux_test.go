package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// roleEnv has the test binary play a role in a test of another process of it.
const roleEnv = "PURECUDA_TEST_PROC_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		os.Exit(m.Run())
	case "mounts": // has a mount namespace of its own
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fallthrough
	case "says": // who it thinks it is
		p, err := Find(0)
		if err != nil {
			fmt.Println(err)
		} else {
			_ = json.NewEncoder(os.Stdout).Encode(p)
		}
	case "execs": // itself, again and again, from a thread that is not the main one
		fmt.Println("ready")
		for {
			go func() {
				runtime.LockOSThread()
				if syscall.Gettid() != os.Getpid() {
					_ = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), roleEnv+"=execs"))
				}
			}()
			time.Sleep(time.Millisecond)
		}
	default:
		fmt.Println("ready")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// child is another process. It ends when its input does.
type child struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
	id    driver.Process // if Find finds it
}

// start starts cmd and waits for its first line.
func start(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	if err := cmd.Start(); cmd.SysProcAttr != nil && err != nil {
		t.Skipf("namespaces cannot be made here: %v", err)
	} else {
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := &child{cmd: cmd, in: in, lines: bufio.NewScanner(out)}
	require.True(t, c.lines.Scan(), "the child has ended")
	c.id, _ = Find(cmd.Process.Pid)
	return c
}

// play starts the test binary in a role, in new namespaces if there are flags.
func play(t *testing.T, role string, namespaces uintptr) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	if namespaces != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces &^ syscall.CLONE_NEWNS, Unshareflags: namespaces & syscall.CLONE_NEWNS}
	}
	c := start(t, cmd)
	if role == "mounts" && !strings.HasPrefix(c.lines.Text(), "{") {
		t.Skipf("/proc cannot be mounted here: %s", c.lines.Text())
	}
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill())
}

// startC compiles a program and starts it.
func startC(t *testing.T, source string, args ...string) *child {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.c"), []byte(source), 0o600))
	out, err := exec.Command(gcc, "-O1", "-pthread", "-o", filepath.Join(dir, "p"), filepath.Join(dir, "p.c")).CombinedOutput()
	require.NoError(t, err, string(out))
	return start(t, exec.Command(filepath.Join(dir, "p"), args...))
}

// startSlow starts a process whose end takes until release is called: the first of
// a PID namespace must outlast all others there, and one of those stays a zombie
// because its parent, which is outside, is stopped.
func startSlow(t *testing.T) (c *child, release func()) {
	t.Helper()
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("there is no nsenter")
	}
	c = play(t, "waits", syscall.CLONE_NEWPID)
	if out, err := exec.Command(nsenter, "--pid", "--target", strconv.Itoa(c.pid()), "true").CombinedOutput(); err != nil {
		t.Skipf("namespaces cannot be entered here: %s", out)
	}
	parent := start(t, exec.Command(nsenter, "--pid", "--target", strconv.Itoa(c.pid()), "sh", "-c", "echo ready; read x"))
	require.NoError(t, parent.cmd.Process.Signal(syscall.SIGSTOP))
	release = sync.OnceFunc(func() { _ = parent.cmd.Process.Signal(syscall.SIGCONT) })
	t.Cleanup(release)
	return c, release
}

// diary notes what a watch says, and when.
type diary struct {
	mu    sync.Mutex
	calls []string
	at    []time.Time
}

func (d *diary) note(what string) func() {
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls, d.at = append(d.calls, what), append(d.at, time.Now())
	}
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.calls...)
}

// when returns the time of a call, after waiting for it.
func (d *diary) when(t *testing.T, n int) time.Time {
	t.Helper()
	require.Eventually(t, func() bool { return len(d.read()) > n }, 10*time.Second, time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[n]
}

// ended waits for both calls, and for more for a moment.
func (d *diary) ended(t *testing.T) {
	t.Helper()
	d.when(t, 1)
	time.Sleep(3 * interval)
	require.Equal(t, []string{"dying", "gone"}, d.read())
}

func watchIn(t *testing.T, w *watcher, p driver.Process) (d *diary, stop func()) {
	t.Helper()
	d = new(diary)
	stop, err := w.watch(p, d.note("dying"), d.note("gone"))
	require.NoError(t, err)
	t.Cleanup(stop)
	return d, stop
}

// both runs f with pidfds and without.
func both(t *testing.T, f func(t *testing.T, w *watcher)) {
	for name, without := range map[string]bool{"pidfd": false, "looking": true} {
		t.Run(name, func(t *testing.T) {
			w := &watcher{noPidfd: without}
			f(t, w)
		})
	}
}

// idle waits until w has nothing to do.
func idle(t *testing.T, w *watcher) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.looking && len(w.processes) == 0
	}, 5*time.Second, time.Millisecond)
}

// ours counts the files of this process whose name contains one of parts.
func ours(t *testing.T, parts ...string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		name, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		for _, part := range parts {
			if strings.Contains(name, part) {
				n++
				break
			}
		}
	}
	return n
}
