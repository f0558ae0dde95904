package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestFindThisProcess(t *testing.T) {
	p, err := Find(0)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), p.PID)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(boot)), p.Boot.String())
	require.NotZero(t, p.Namespace)
	require.NotZero(t, p.Start)
	again, err := Find(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, p, again)
	known.Store(nil)
	again, err = Find(0)
	require.NoError(t, err)
	require.Equal(t, p, again, "without what it remembers")
}

// What a process says of itself is what others find.
func TestFindAgrees(t *testing.T) {
	c := play(t, "says", 0)
	require.Equal(t, said(t, c), c.id)
	require.Equal(t, c.pid(), c.id.PID)
	own, err := Find(0)
	require.NoError(t, err)
	require.Equal(t, own.Boot, c.id.Boot)
	require.Equal(t, own.Namespace, c.id.Namespace)
	require.GreaterOrEqual(t, c.id.Start, own.Start)
}

func said(t *testing.T, c *child) (p driver.Process) {
	t.Helper()
	require.NoError(t, json.Unmarshal(c.lines.Bytes(), &p), c.lines.Text())
	return p
}

func TestFindNobody(t *testing.T) {
	ended := play(t, "waits", 0)
	require.NoError(t, ended.in.Close())
	require.NoError(t, ended.cmd.Wait())

	tids, err := threads("/proc/self/task")
	require.NoError(t, err)
	thread, err := strconv.Atoi(tids[1]) // the first is the main thread, whose number is the process's
	require.NoError(t, err)
	for name, pid := range map[string]int{
		"negative": -1, "large": math.MaxInt32, "has ended": ended.pid(), "a thread": thread,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(pid)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NotErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorContains(t, err, "no process")
		})
	}
}

func TestFindZombie(t *testing.T) {
	c := play(t, "waits", 0)
	c.kill(t)
	zombie := func() bool { // with all of its threads
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
		s, bad := parseStat(text)
		return err == nil && bad == nil && s.state == 'Z' && s.threads == 1
	}
	require.Eventually(t, zombie, 5*time.Second, time.Millisecond)
	_, err := Find(c.pid())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "ending")
}

// A process that another user's /proc does not show, or of which this one may not
// read what is needed, is not said to be absent.
func TestFindHidden(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changes the user")
	}
	c := play(t, "waits", 0)
	nested := play(t, "mounts", syscall.CLONE_NEWPID|syscall.CLONE_NEWNS)
	ordinary(t, func() {
		p, err := Find(c.pid())
		require.NoError(t, err, "no permission is needed in the same namespace")
		require.Equal(t, c.id, p)
		_, err = Find(nested.pid())
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "namespace")
	})
}

// ordinary runs f on a thread of an ordinary user.
func ordinary(t *testing.T, f func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never again for other goroutines
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534)
		if errno == 0 {
			f()
		} else {
			t.Errorf("setresuid: %v", errno)
		}
	}()
	<-done
}
