package proc

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestWatchKill(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "waits", 0)
		d, _ := watchIn(t, w, c.id)
		time.Sleep(3 * interval)
		require.Empty(t, d.read())
		killed := time.Now()
		c.kill(t)
		require.Less(t, d.when(t, 0).Sub(killed), time.Second)
		d.ended(t)
		idle(t, w)
	})
}

func TestWatchExit(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "waits", 0)
		d, _ := watchIn(t, w, c.id)
		require.NoError(t, c.in.Close())
		d.ended(t) // as a zombie: nobody has waited for it
		require.NoError(t, c.cmd.Wait())
		idle(t, w)
	})
}

// A process that has ended and been waited for between two looks.
func TestWatchReaped(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "waits", 0)
		d, _ := watchIn(t, w, c.id)
		require.NoError(t, c.in.Close())
		require.NoError(t, c.cmd.Wait())
		d.ended(t)
	})
}

// The end of a process that is long in ending is noticed early, and gone is not said
// before it is.
func TestWatchSlowEnd(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c, release := startSlow(t)
		d, _ := watchIn(t, w, c.id)
		killed := time.Now()
		c.kill(t)
		require.Less(t, d.when(t, 0).Sub(killed), time.Second)
		_, err := Find(c.pid())
		require.ErrorIs(t, err, fs.ErrNotExist)

		late, _ := watchIn(t, w, c.id)
		other, _ := watchIn(t, &watcher{noPidfd: w.noPidfd}, c.id)
		late.when(t, 0)
		other.when(t, 0)
		time.Sleep(5 * interval)
		for _, d := range []*diary{d, late, other} {
			require.Equal(t, []string{"dying"}, d.read())
		}
		release()
		for _, d := range []*diary{d, late, other} {
			d.ended(t)
		}
		idle(t, w)
	})
}

func TestWatchNobody(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := play(t, "waits", 0)
		reused, rebooted := c.id, c.id
		reused.Start--
		rebooted.Boot[3]++
		refused := func(p driver.Process) {
			t.Helper()
			files := ours(t, "pidfd", "/stat")
			_, err := w.watch(p, func() { t.Error("dying") }, func() { t.Error("gone") })
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.Equal(t, files, ours(t, "pidfd", "/stat"), "leaked files")
		}
		refused(reused)
		refused(rebooted)
		d, _ := watchIn(t, w, c.id)
		c.kill(t)
		d.ended(t)
		refused(c.id) // a zombie
		require.Error(t, c.cmd.Wait())
		refused(c.id)
		idle(t, w)
	})
}

func TestWatchThisProcess(t *testing.T) {
	own, err := Find(0)
	require.NoError(t, err)
	var w watcher
	stop, err := w.watch(own, func() { t.Error("dying") }, func() { t.Error("gone") })
	require.NoError(t, err)
	require.Empty(t, w.processes, "there is no need to look")
	time.Sleep(3 * interval)
	stop()
	stop()
}

// The end of the main thread is not that of the process.
func TestMainThreadEnds(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		c := startC(t, `
#include <pthread.h>
#include <stdio.h>
static pthread_t first;
static void *wait(void *x) { pthread_join(first, 0); puts("ready"); fflush(stdout); getchar(); return x; }
int main(void) { pthread_t t; first = pthread_self(); pthread_create(&t, 0, wait, 0); pthread_exit(0); }`)
		id, err := Find(c.pid())
		require.NoError(t, err)
		d, _ := watchIn(t, w, id)
		time.Sleep(5 * interval)
		require.Empty(t, d.read())
		require.NoError(t, c.in.Close())
		d.ended(t)
	})
}

// Threads that come and go behind a main thread that has ended, and one that takes
// its place by executing a program, never look like the end.
func TestThreadsComeAndGo(t *testing.T) {
	busy := func(t *testing.T, c *child) {
		id, err := Find(c.pid())
		require.NoError(t, err)
		f, err := open(c.pid())
		require.NoError(t, err)
		defer f.Close()
		d, _ := watchIn(t, new(watcher), id)
		for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
			start, far, err := look(c.pid(), f)
			require.NoError(t, err)
			require.Equal(t, id.Start, start)
			require.Equal(t, alive, far)
		}
		require.Empty(t, d.read())
		c.kill(t)
		d.ended(t)
	}
	t.Run("threads", func(t *testing.T) {
		busy(t, startC(t, `
#include <pthread.h>
#include <stdio.h>
static void *next(void *x) { pthread_t t; pthread_detach(pthread_self()); while (pthread_create(&t, 0, next, 0)); return x; }
int main(void) { puts("ready"); fflush(stdout); next(0); pthread_exit(0); }`))
	})
	t.Run("exec", func(t *testing.T) { busy(t, play(t, "execs", 0)) })
}

// Many watches of many processes: none takes a thread, and nothing is left of them.
func TestManyWatches(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		const processes, each = 20, 50
		var children [processes]*child
		for i := range children {
			children[i] = play(t, "waits", 0)
		}
		goroutines, threads, files := runtime.NumGoroutine(), numThreads(t), ours(t, "pidfd", "/stat")
		var dyings, gones [processes]atomic.Int64
		var stops []func()
		for range each {
			for i, c := range children {
				stop, err := w.watch(c.id, func() { dyings[i].Add(1) }, func() {
					if dyings[i].Load() == 0 {
						t.Error("gone before dying")
					}
					gones[i].Add(1)
				})
				require.NoError(t, err)
				stops = append(stops, stop)
			}
		}
		time.Sleep(5 * interval)
		require.LessOrEqual(t, numThreads(t), threads+3, "one per watch would be many more")
		perProcess := 2
		if w.noPidfd {
			perProcess = 1
		}
		require.Equal(t, files+processes*perProcess, ours(t, "pidfd", "/stat"))
		for _, c := range children[:processes/2] {
			c.kill(t)
		}
		for i := range processes / 2 {
			require.Eventually(t, func() bool { return gones[i].Load() == each }, 5*time.Second, time.Millisecond)
		}
		for _, stop := range stops {
			stop()
			stop()
		}
		for _, c := range children[processes/2:] {
			c.kill(t)
		}
		time.Sleep(3 * interval)
		for i := range processes {
			want := int64(each)
			if i >= processes/2 {
				want = 0 // stopped before
			}
			require.Equal(t, want, dyings[i].Load())
			require.Equal(t, want, gones[i].Load())
		}
		idle(t, w)
		require.Equal(t, files, ours(t, "pidfd", "/stat"))
		for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	})
}

// Watches of one process that begin at the same time share its files.
func TestWatchesShare(t *testing.T) {
	both(t, func(t *testing.T, w *watcher) {
		for range 10 {
			c := play(t, "waits", 0)
			files := ours(t, "pidfd", "/stat")
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if _, err := w.watch(c.id, func() {}, func() {}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, ours(t, "pidfd", "/stat"), files+2)
			c.kill(t)
			idle(t, w)
			require.Equal(t, files, ours(t, "pidfd", "/stat"))
		}
	})
}

func numThreads(t *testing.T) int {
	t.Helper()
	list, err := threads("/proc/self/task")
	require.NoError(t, err)
	return len(list)
}

// The poller tells when nobody looks.
func TestPidfdTells(t *testing.T) {
	w := watcher{looking: true} // it seems
	c := play(t, "waits", 0)
	d, _ := watchIn(t, &w, c.id)
	w.mu.Lock()
	without := w.processes[c.id].pidfd == nil
	w.mu.Unlock()
	if without {
		t.Skip("there are no pidfds here")
	}
	time.Sleep(2 * interval)
	require.Empty(t, d.read())
	c.kill(t)
	d.ended(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.processes)
}

// A watch that fails in the poller ends by looking.
func TestPidfdFails(t *testing.T) {
	var w watcher
	c := play(t, "waits", 0)
	d, _ := watchIn(t, &w, c.id)
	w.mu.Lock()
	_ = w.processes[c.id].pidfd.Close()
	w.mu.Unlock()
	c.kill(t)
	d.ended(t)
	idle(t, &w)
}

func TestReadable(t *testing.T) {
	c := play(t, "waits", 0)
	pidfd := openPidfd(c.pid())
	if pidfd == nil {
		t.Skip("there are no pidfds here")
	}
	defer pidfd.Close()
	conn, err := pidfd.SyscallConn()
	require.NoError(t, err)
	ready := func() (ready bool) {
		require.NoError(t, conn.Control(func(fd uintptr) { ready = readable(fd) }))
		return ready
	}
	require.False(t, ready())
	c.kill(t)
	require.Eventually(t, ready, 5*time.Second, time.Millisecond)
	require.NoError(t, await(pidfd))
	require.Nil(t, openPidfd(1<<30))
}

// In a bubble nothing can be watched. What is watched outside may be stopped there.
func TestWatchInBubble(t *testing.T) {
	var w watcher
	c := play(t, "waits", 0)
	_, stop := watchIn(t, &w, c.id)
	synctest.Test(t, func(t *testing.T) {
		p, err := Find(c.pid())
		require.NoError(t, err)
		require.Equal(t, c.id, p)
		_, err = w.watch(p, func() {}, func() {})
		require.ErrorContains(t, err, "bubble")
		require.ErrorContains(t, err, "unsupported")
		stop()
	})
	idle(t, &w)
}

// The watch that a table of the driver's functions holds is this one.
func TestProcesses(t *testing.T) {
	c := play(t, "waits", 0)
	p, err := Processes.Find(c.pid())
	require.NoError(t, err)
	var d diary
	stop, err := Processes.Watch(p, d.note("dying"), d.note("gone"))
	require.NoError(t, err)
	defer stop()
	require.NoError(t, syscall.Kill(c.pid(), syscall.SIGKILL))
	d.ended(t)
	require.NotEqual(t, os.Getpid(), p.PID)
}
