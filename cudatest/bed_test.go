package cudatest

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// bed is a process with the primary contexts of all devices retained, and what
// tests of the table do all the time. Whatever fails there ends the test.
type bed struct {
	*driver.API
	t   testing.TB
	gpu *GPU
	ctx []driver.Context
}

func newBed(t testing.TB, c Config) *bed {
	gpu := New(c)
	return newBedOn(t, gpu, gpu.API())
}

func newBedOn(t testing.TB, gpu *GPU, api *driver.API) *bed {
	b := &bed{API: api, t: t, gpu: gpu}
	b.ok(api.Init(0))
	n, r := api.DeviceGetCount()
	b.ok(r)
	for d := range n {
		c, r := api.DevicePrimaryCtxRetain(driver.Device(d))
		b.ok(r)
		b.ctx = append(b.ctx, c)
	}
	return b
}

func (b *bed) ok(r driver.Result) {
	b.t.Helper()
	require.Equal(b.t, driver.Success, r)
}

// on calls f with a device's context current.
func (b *bed) on(device int, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ok(b.CtxPushCurrent(b.ctx[device]))
	defer b.CtxPopCurrent()
	f()
}

func (b *bed) stream(device int, flags uint32) (s driver.Stream) {
	b.t.Helper()
	b.on(device, func() {
		var r driver.Result
		s, r = b.StreamCreateWithPriority(flags, 0)
		b.ok(r)
	})
	return s
}

func (b *bed) event(device int, flags uint32) (e driver.Event) {
	b.t.Helper()
	b.on(device, func() {
		var r driver.Result
		e, r = b.EventCreate(flags)
		b.ok(r)
	})
	return e
}

func (b *bed) mem(device int, n uint64) (p driver.DevicePtr) {
	b.t.Helper()
	b.on(device, func() {
		var r driver.Result
		p, r = b.MemAlloc(n)
		b.ok(r)
	})
	return p
}

func (b *bed) pinned(n uint64) (data []byte) {
	b.t.Helper()
	b.on(0, func() {
		p, r := b.MemHostAlloc(n, 0)
		b.ok(r)
		data = unsafe.Slice((*byte)(p), n)
	})
	return data
}

// elapsed returns the milliseconds between two events.
func (b *bed) elapsed(start, end driver.Event) float32 {
	b.t.Helper()
	ms, r := b.EventElapsedTime(start, end)
	b.ok(r)
	return ms
}

func at(data []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(data)) }
