package ipc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// becomes waits until f holds. It collects no garbage meanwhile, see [eventually].
func becomes(t testing.TB, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not come true")
		}
	}
}

// parked waits until n waits are left to the watchers.
func parked(t testing.TB, drv *cuda.Driver, n int) {
	t.Helper()
	becomes(t, func() bool { return drv.WaitStats().Waiting == n })
}

// nobodyWaits waits until the watchers have ended, and wants no wait left.
func nobodyWaits(t testing.TB, drv *cuda.Driver) {
	t.Helper()
	becomes(t, func() bool { return drv.WaitStats().Watchers == 0 })
	require.Zero(t, drv.WaitStats().Waiting)
}

// started runs f on a goroutine of its own.
func started(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// told receives from done, within a few seconds.
func told(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("was not told")
		return nil
	}
}

// notTold fails the test if one of the waits is over.
func notTold(t testing.TB, waits ...<-chan error) {
	t.Helper()
	time.Sleep(soon)
	for i, done := range waits {
		select {
		case err := <-done:
			t.Fatalf("wait %d ended with %v", i, err)
		default:
		}
	}
}

// ways are the ways to wait for one thing.
var ways = map[string]func(ctx context.Context, w cuda.Waitable) error{
	"Synchronize":        func(_ context.Context, w cuda.Waitable) error { return w.Synchronize() },
	"SynchronizeContext": func(ctx context.Context, w cuda.Waitable) error { return w.SynchronizeContext(ctx) },
	"Done":               func(_ context.Context, w cuda.Waitable) error { return <-w.Done() },
	"WaitAny":            func(ctx context.Context, w cuda.Waitable) error { _, err := cuda.WaitAny(ctx, w); return err },
	"WaitAll":            func(ctx context.Context, w cuda.Waitable) error { return cuda.WaitAll(ctx, w) },
}

// waits begins to wait for w in every way.
func waits(t testing.TB, w cuda.Waitable) (all []<-chan error) {
	for _, wait := range ways {
		all = append(all, started(func() error { return wait(t.Context(), w) }))
	}
	return all
}

// valve stops questions about events on their way to the driver, or answers on
// their way back.
type valve struct {
	mu      sync.Mutex
	shut    chan struct{} // nil while it is open
	of      func(e driver.Event) bool
	answer  driver.Result // stops answers of this kind instead
	stopped atomic.Int32
}

func (v *valve) fit(api *driver.API) {
	bare := api.EventQuery
	api.EventQuery = func(e driver.Event) driver.Result {
		v.mu.Lock()
		shut, of, answer := v.shut, v.of, v.answer
		v.mu.Unlock()
		if shut == nil || !of(e) {
			return bare(e)
		}
		r := driver.ErrorNotReady
		if answer >= 0 {
			if r = bare(e); r != answer {
				return r
			}
		}
		v.stopped.Add(1)
		<-shut
		if answer >= 0 {
			return r
		}
		return bare(e)
	}
}

const questions driver.Result = -1

// close stops what concerns the events that of picks: the questions about them, or
// one kind of answer.
func (v *valve) close(t testing.TB, what driver.Result, of func(driver.Event) bool) (open func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	shut := make(chan struct{})
	v.shut, v.of, v.answer = shut, of, what
	v.stopped.Store(0)
	open = sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.shut = nil
		close(shut)
	})
	releasedAtEnd(t, open)
	return open
}

func anyEvent(driver.Event) bool { return true }

// blocks are what keeps each test's streams and watchers from going on.
var blocks = struct {
	sync.Mutex
	of map[testing.TB][]func()
}{of: map[testing.TB][]func(){}}

// releasedAtEnd sees to it that a test that fails releases all before it waits for
// anything in its cleanups.
func releasedAtEnd(t testing.TB, release func()) {
	blocks.Lock()
	defer blocks.Unlock()
	blocks.of[t] = append(blocks.of[t], release)
	t.Cleanup(func() {
		blocks.Lock()
		defer blocks.Unlock()
		for _, release := range blocks.of[t] {
			release()
		}
		delete(blocks.of, t)
	})
}

// late is how much later than the work a wait may end in virtual time.
const late = 2 * time.Millisecond

func onTime(t testing.TB, began time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(began); took < want || took > want+late {
		t.Errorf("ended after %v, not %v", took, want)
	}
}
