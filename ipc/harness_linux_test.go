package ipc

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
	"github.com/purecuda/cuda/internal/testgpu"
)

// awaited is a context that reports when somebody begins to wait for its end.
type awaited struct {
	context.Context
	tell  func()
	waits chan struct{}
}

func newAwaited(ctx context.Context) *awaited {
	waits := make(chan struct{})
	return &awaited{ctx, sync.OnceFunc(func() { close(waits) }), waits}
}

func (a *awaited) Done() <-chan struct{} {
	a.tell()
	return a.Context.Done()
}

func isClosed[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mortal are the operating system's processes, of which a test can have the watched
// ones die.
type mortal struct {
	mu      sync.Mutex
	watched map[*[2]func()]bool
}

func (m *mortal) processes() *driver.Processes {
	return &driver.Processes{Find: proc.Find, Watch: m.watch}
}

func (m *mortal) watch(_ driver.Process, dying, gone func()) (stop func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched == nil {
		m.watched = map[*[2]func()]bool{}
	}
	w := &[2]func(){dying, gone}
	m.watched[w] = true
	return func() {
		m.mu.Lock() // also waits for the calls
		defer m.mu.Unlock()
		delete(m.watched, w)
	}, nil
}

func (m *mortal) tell(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watched {
		w[i]()
	}
}

func (m *mortal) die() { m.tell(0) }

func (m *mortal) gone() { m.tell(1) }

func (m *mortal) watches() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.watched)
}

// abandon drops the connection without a word, as the death of the process does.
func (s *Session) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnect(reason{cuda.ErrPeerGone, "abandoned"})
}

// end is one of two processes.
type end struct {
	*Session
	drv    *cuda.Driver
	dev    *cuda.Device
	sim    *cudatest.Process
	stream *cuda.Stream
	peers  *mortal // the other end, as this one sees it
}

// pair connects two simulated processes. At the test's end nothing must be left.
func pair(t *testing.T) (a, b *end) {
	t.Helper()
	gpu := cudatest.New(cudatest.Config{})
	leavesNothing(t)
	a, b = newEnd(t, gpu), newEnd(t, gpu)
	t.Cleanup(func() {
		for _, e := range []*end{a, b} {
			_ = e.Session.Close()
			_ = e.stream.Close()
		}
		if t.Failed() {
			return
		}
		for deadline := time.Now().Add(5 * time.Second); len(gpu.Problems()) > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		gpu.Check(t)
		for _, e := range []*end{a, b} {
			require.Zero(t, e.drv.Stats().Forgotten)
			testgpu.WaitUntil(t, func() bool { return e.peers.watches() == 0 })
		}
	})
	a.Session, b.Session = connected(t, &Options{processes: a.peers.processes()}, &Options{processes: b.peers.processes()})
	return a, b
}

func newEnd(t *testing.T, gpu *cudatest.GPU) *end {
	e := &end{sim: gpu.NewProcess(), peers: &mortal{}}
	var err error
	e.drv, err = cuda.OpenDriver(e.sim.API())
	require.NoError(t, err)
	e.dev, err = e.drv.OpenDevice(0)
	require.NoError(t, err)
	e.stream, err = e.dev.NewStream(nil)
	require.NoError(t, err)
	return e
}

func connected(t testing.TB, listens, dials *Options) (a, b *Session) {
	t.Helper()
	l := listening(t, listens)
	result := testgpu.Go(func() (err error) {
		b, err = Dial(t.Context(), l.path, dials)
		return err
	})
	a, err := l.Accept(t.Context())
	require.NoError(t, err)
	require.NoError(t, testgpu.Receive(t, result))
	require.NoError(t, l.Close())
	return a, b
}

func listening(t testing.TB, opts *Options) *Listener {
	t.Helper()
	l, err := Listen(filepath.Join(t.TempDir(), "socket"), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// leavesNothing fails the test if it leaves goroutines of this package or files open.
func leavesNothing(t testing.TB) {
	t.Helper()
	before, running := openFiles(t), len(goroutines()) // of a test that failed
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		deadline := time.Now().Add(5 * time.Second)
		for len(openFiles(t)) > len(before) || len(goroutines()) > running {
			if time.Now().After(deadline) {
				t.Fatalf("left: files %v, before %v, goroutines %s", openFiles(t), before, strings.Join(goroutines(), "\n\n"))
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// openFiles lists this process's sockets and others that are not Go's own.
func openFiles(t testing.TB) (all []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(name, "anon_inode:[event") {
			all = append(all, name)
		}
	}
	return all
}

// goroutines returns the stacks of those that run code of this package and no test.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(all, func(s string) bool {
		return !strings.Contains(s, "/ipc.") || strings.Contains(s, "testing.tRunner")
	})
}

func (e *end) event(t testing.TB) *cuda.Event {
	return cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: e.dev})
}

func (e *end) memory(t testing.TB, values ...float32) *cuda.Buffer[float32] {
	t.Helper()
	b, err := cuda.Alloc[float32](e.dev, len(values))
	require.NoError(t, err)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), e.stream, b, values))
	require.NoError(t, e.stream.Synchronize())
	return b
}

func (e *end) read(t testing.TB, b *cuda.Buffer[float32]) []float32 {
	t.Helper()
	values := make([]float32, b.Len())
	require.NoError(t, cuda.CopyToSlice(t.Context(), e.stream, values, b))
	require.NoError(t, e.stream.Synchronize())
	return values
}

func (e *end) attach(t testing.TB, name string) *cuda.Buffer[float32] {
	t.Helper()
	b, err := Buffer[float32](t.Context(), e.Session, e.drv, name)
	require.NoError(t, err)
	return b
}

// live counts what the driver of e has open, but for the test's own stream.
func (e *end) live() int { s := e.drv.Stats(); return s.Events + s.Buffers }

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
