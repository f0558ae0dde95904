package drivertest

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// A bench is what a row works on: the table, the first devices with their
// primary contexts, and the streams, events and memory that the row asks for.
// All of it is destroyed when the row ends, with every hold let go first, so
// that a row that fails in the middle blocks nothing.
//
// Its methods fail the row, so only the row's own goroutine may call them,
// except those said to be for any goroutine.
type bench struct {
	*driver.API
	t   testing.TB
	dev []driver.Device
	ctx []driver.Context

	// Memory is taken once, before the row holds any stream, and handed out in
	// pieces: a driver may wait for the device to be idle when it makes memory.
	host    []byte
	devices []driver.DevicePtr
	used    uint64

	events  map[driver.Event]bool
	streams map[driver.Stream]int // the device of each
	calls   sync.WaitGroup

	mu      sync.Mutex // guards what follows, which the watchdog uses
	holds   []*hold
	expired bool
}

// arenaSize is the size of the pinned memory and of each device's memory of a
// bench; pieces begin at multiples of pieceAlign.
const (
	arenaSize  = 64 << 10
	pieceAlign = 256
)

// newBench readies the table's first devices for a row that may take limit; 0
// stands for any time.
func newBench(t testing.TB, api *driver.API, limit time.Duration) *bench {
	t.Helper()
	table := *api // the caller's stays as it is
	if err := table.Complete(); err != nil {
		t.Fatal(err)
	}
	b := &bench{API: &table, t: t, events: map[driver.Event]bool{}, streams: map[driver.Stream]int{}}
	b.ok("Init", b.Init(0))
	count, r := b.DeviceGetCount()
	b.ok("DeviceGetCount", r)
	if count < 1 {
		t.Fatalf("DeviceGetCount: %d devices and no error", count)
	}
	stop := func() bool { return true }
	if limit > 0 {
		stop = time.AfterFunc(limit, b.expire).Stop
	}
	t.Cleanup(func() {
		stop()
		b.close(limit)
	})
	for d := range min(int(count), suiteDevices) {
		dev, r := b.DeviceGet(int32(d))
		b.ok("DeviceGet", r)
		ctx, r := b.DevicePrimaryCtxRetain(dev)
		b.ok("DevicePrimaryCtxRetain", r)
		b.dev, b.ctx = append(b.dev, dev), append(b.ctx, ctx)
		b.with(d, func() {
			p, r := b.MemAlloc(arenaSize)
			b.ok("MemAlloc", r)
			b.devices = append(b.devices, p)
		})
	}
	b.with(0, func() {
		p, r := b.MemHostAlloc(arenaSize, driver.MemHostAllocPortable|driver.MemHostAllocDeviceMap)
		b.ok("MemHostAlloc", r)
		b.host = unsafe.Slice((*byte)(p), arenaSize)
	})
	return b
}

// expire is the watchdog: it lets every hold go, so that whatever the row is
// blocked in returns.
func (b *bench) expire() {
	b.mu.Lock()
	b.expired = true
	b.mu.Unlock()
	b.releaseAll()
}

// late reports whether the row has run out of time.
func (b *bench) late() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expired
}

func (b *bench) releaseAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.holds {
		h.release()
	}
}

// close undoes the row: first the holds, because freeing memory waits for the
// device to be idle, then what runs, then what was made.
func (b *bench) close(limit time.Duration) {
	b.releaseAll()
	b.mu.Lock()
	b.holds = nil // their words are about to go: the watchdog may come late
	b.mu.Unlock()
	b.calls.Wait()
	if b.late() {
		b.t.Errorf("the row took longer than %v, because a call blocked that should have returned "+
			"or work never ran; its held streams were let go to end it", limit)
	}
	note := func(what string, r driver.Result) {
		if r != driver.Success {
			b.t.Errorf("cleaning up: %s: %v", what, r)
		}
	}
	for d := range b.ctx {
		note("CtxSynchronize", b.in(d, b.CtxSynchronize))
	}
	for e := range b.events {
		note("EventDestroy", b.EventDestroy(e))
	}
	for s := range b.streams {
		note("StreamDestroy", b.StreamDestroy(s))
	}
	if b.host != nil {
		note("MemFreeHost", b.in(0, func() driver.Result { return b.MemFreeHost(hostPointer(b.host)) }))
	}
	for d, p := range b.devices {
		note("MemFree", b.in(d, func() driver.Result { return b.MemFree(p) }))
	}
	for d := range b.ctx {
		note("DevicePrimaryCtxRelease", b.DevicePrimaryCtxRelease(b.dev[d]))
	}
}

// want fails the row unless the driver answered want.
func (b *bench) want(what string, got, want driver.Result) {
	b.t.Helper()
	if got != want {
		b.t.Fatalf("%s:\n got %v\nwant %v", what, outcome(got), outcome(want))
	}
}

// ok is want with Success.
func (b *bench) ok(what string, r driver.Result) {
	b.t.Helper()
	b.want(what, r, driver.Success)
}

// outcome is r for a message; an error's own text says nothing useful of Success.
func outcome(r driver.Result) string {
	if r == driver.Success {
		return "success"
	}
	return r.Error()
}

// equal fails the row unless got is want.
func equal[T comparable](b *bench, what string, got, want T) {
	b.t.Helper()
	if got != want {
		b.t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// need skips the row where r says that the driver or the device lacks a
// function, and fails it for any other error. Old drivers lack some, and a table
// that does not implement them may be sound: the library does without. This
// package's own tests fail if a row is skipped on a simulated GPU of two devices,
// which lacks nothing.
func (b *bench) need(what string, r driver.Result) {
	b.t.Helper()
	if r == driver.ErrorCallRequiresNewerDriver || r == driver.ErrorNotSupported {
		b.t.Skipf("the driver has no %s: %v", what, r)
	}
	b.ok(what, r)
}

// in calls f with the device's primary context current. It is for any goroutine.
func (b *bench) in(device int, f func() driver.Result) (r driver.Result) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := b.CtxPushCurrent(b.ctx[device]); r != driver.Success {
		return r
	}
	defer func() {
		if _, popped := b.CtxPopCurrent(); r == driver.Success {
			r = popped
		}
	}()
	return f()
}

// with is in for several calls, each of which checks its own answer.
func (b *bench) with(device int, f func()) {
	b.t.Helper()
	b.ok("with a context current", b.in(device, func() driver.Result {
		f()
		return driver.Success
	}))
}

// bare calls f on a thread that has no current context.
func (b *bench) bare(f func()) {
	b.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, r := b.CtxGetCurrent()
	b.ok("CtxGetCurrent", r)
	for pops := 0; c != 0; pops++ {
		if pops == 16 {
			b.t.Fatalf("the thread has a current context after %d CtxPopCurrent", pops)
		}
		_, r := b.CtxPopCurrent()
		b.ok("CtxPopCurrent", r)
		defer b.CtxPushCurrent(c)
		c, r = b.CtxGetCurrent()
		b.ok("CtxGetCurrent", r)
	}
	f()
}

// elsewhere calls f on another thread than the caller's, with no context
// current, and returns its answer.
func (b *bench) elsewhere(f func() driver.Result) driver.Result {
	runtime.LockOSThread() // so that the new goroutine cannot be given this thread
	defer runtime.UnlockOSThread()
	c := b.start(f)
	<-c.done
	return c.r
}
