package testgpu

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

const (
	// Soon is how long a test waits for something that must not happen.
	Soon = 20 * time.Millisecond
	// Late is how much later than the work a wait may end in virtual time.
	Late = 2 * time.Millisecond
)

// limit is how long a test waits for something that must happen: 10 s, or the seconds in
// PURECUDA_TEST_PATIENCE, where failures are expected and should not take long.
var limit = func() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("PURECUDA_TEST_PATIENCE")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 10 * time.Second
}()

// OnTime checks that what began has taken want, up to [Late] more.
func OnTime(t testing.TB, began time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(began); took < want || took > want+Late {
		t.Errorf("ended after %v, not %v", took, want)
	}
}

// WaitUntil waits until f holds. It collects no garbage meanwhile, see [CollectUntil].
func WaitUntil(t testing.TB, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not come true")
		}
	}
}

// CollectUntil collects garbage until f holds.
func CollectUntil(t testing.TB, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		if f() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("did not come true")
		}
	}
}

// Returns fails the test unless f returns within a few seconds.
func Returns(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal("did not return")
	}
}

// Go runs f on a goroutine of its own. The channel receives its result.
func Go(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// Receive receives from c, within a few seconds.
func Receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(limit):
		t.Fatal("nothing was received")
	}
	return v
}

// NotReady fails the test if something can be received from a channel, now or soon, or one
// is closed.
func NotReady[T any](t testing.TB, channels ...<-chan T) {
	t.Helper()
	time.Sleep(Soon)
	for i, c := range channels {
		select {
		case v, ok := <-c:
			t.Fatalf("channel %d received %v too early (closed: %t)", i, v, !ok)
		default:
		}
	}
}

// Parked waits until n waits are left to the pollers of the devices.
func Parked(t testing.TB, drv *cuda.Driver, n int) {
	t.Helper()
	WaitUntil(t, func() bool { return drv.WaitStats().Waiting == n })
}

// NoWaits waits until the pollers have ended, and wants no wait left.
func NoWaits(t testing.TB, drv *cuda.Driver) {
	t.Helper()
	WaitUntil(t, func() bool { return drv.WaitStats().Watchers == 0 })
	require.Zero(t, drv.WaitStats().Waiting)
}

// WaitWays are the ways to wait for one thing.
var WaitWays = map[string]func(ctx context.Context, w cuda.Waitable) error{
	"Synchronize":        func(_ context.Context, w cuda.Waitable) error { return w.Synchronize() },
	"SynchronizeContext": func(ctx context.Context, w cuda.Waitable) error { return w.SynchronizeContext(ctx) },
	"Done":               func(_ context.Context, w cuda.Waitable) error { return <-w.Done() },
	"WaitAny":            func(ctx context.Context, w cuda.Waitable) error { _, err := cuda.WaitAny(ctx, w); return err },
	"WaitAll":            func(ctx context.Context, w cuda.Waitable) error { return cuda.WaitAll(ctx, w) },
}

// Waits begins to wait for w in every way.
func Waits(t testing.TB, w cuda.Waitable) (all []<-chan error) {
	for _, wait := range WaitWays {
		all = append(all, Go(func() error { return wait(t.Context(), w) }))
	}
	return all
}

// Threads returns how many threads the process has, 0 where that is not known.
func Threads() int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	return len(tasks)
}
