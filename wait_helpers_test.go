package cuda_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
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

// native returns the handle of e, and does not make others share it as Handle does.
func native(t testing.TB, e *cuda.Event) (h driver.Event) {
	t.Helper()
	_, hex, _ := strings.Cut(e.String(), ", ")
	_, err := fmt.Sscanf(hex, "%v)", (*uintptr)(&h))
	require.NoError(t, err)
	return h
}

// changed is b with a driver of its own whose table is changed.
func changed(t testing.TB, b *backend, change func(*driver.API)) *backend {
	t.Helper()
	api := *b.drv.API()
	change(&api)
	return opened(t, &api)
}

// simulatedDevices is a backend of a simulated GPU, with a table that change leaves.
func simulatedDevices(t testing.TB, c cudatest.Config, change func(*driver.API)) (*cudatest.GPU, *backend) {
	t.Helper()
	gpu := cudatest.New(c)
	t.Cleanup(func() {
		if t.Failed() {
			return // it may have left anything
		}
		for _, p := range gpu.Problems() {
			t.Error(p)
		}
	})
	api := *gpu.API()
	if change != nil {
		change(&api)
	}
	return gpu, opened(t, &api)
}

func opened(t testing.TB, api *driver.API) *backend {
	t.Helper()
	drv, err := cuda.OpenDriver(api)
	require.NoError(t, err)
	b := &backend{drv: drv}
	for i := range drv.DeviceCount() {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		b.devices = append(b.devices, d)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			becomes(t, func() bool { return drv.Stats() == cuda.Stats{} })
			nobodyWaits(t, drv)
		}
	})
	return b
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

// block is [hold] for tests that block several things.
func block(t testing.TB, s *cuda.Stream) (release func()) {
	t.Helper()
	release = hold(t, s)
	releasedAtEnd(t, release)
	return release
}
