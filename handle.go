package cuda

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// handle is a native object of the driver with a count of the calls in flight.
// Close lets go of it, and destroys it unless a call is in flight: then the last
// call does. So a Close during a wait on another goroutine is safe, and
// no call ever sees a destroyed handle.
//
// It is an allocation of its own, apart from the Stream, Event or Buffer that
// owns it, so that a cleanup can still reach it when its owner is garbage.
type handle struct {
	refs   atomic.Int64
	native uint64 // CUstream, CUevent, CUdeviceptr, CUmodule, CUgraph or CUgraphExec
	kind   kind
	dev    *Device
	// pointer is, for pinned host memory, the address again, as the pointer that
	// the driver gave.
	pointer unsafe.Pointer
	// spare is, for a stream, an event that WaitStream records; see takeSpare.
	spare atomic.Uintptr
	// uses counts, for a stream, its uses of memory that has another home.
	uses     atomic.Uint64
	joins    atomic.Pointer[joins] // of a stream
	mem      *lifetime             // of memory
	held     *held                 // of a graph: what it needs
	captured atomic.Uint64         // of an event: the capture in which it was last recorded; 0 if in none
	covers   coverage              // of an event
	// gone is closed by Close, for those who wait; made by the first of them.
	gone atomic.Pointer[chan struct{}]
}

// letGo is added to refs when the owner lets go: the count goes far below
// zero and acquire fails. destroyed marks that the last reference went.
const (
	letGo     = -1 << 40
	destroyed = -1 << 60
)

func newHandle(d *Device, k kind, native uint64) *handle {
	d.driver.live[k].Add(1)
	return &handle{native: native, kind: k, dev: d}
}

// acquire takes a reference for a call; it fails once the handle is closed.
func (h *handle) acquire() bool {
	if h.refs.Add(1) > 0 {
		return true
	}
	h.release()
	return false
}

// retain takes a reference while the caller holds one.
func (h *handle) retain() { h.refs.Add(1) }

// release gives a call's reference back.
func (h *handle) release() {
	if h.refs.Add(-1) == letGo {
		if r := h.destroyOnce(); r != driver.Success {
			h.cleanupFailed(r)
		}
	}
}

// cleanupFailed reports that h could not be destroyed.
func (h *handle) cleanupFailed(r driver.Result) {
	h.dev.driver.cleanupFailed(failure(h.kind.String()+" destroy", r))
}

// close drops the owner's reference. Only the first call has an effect; its
// result is the driver's answer if nothing was in flight.
func (h *handle) close() driver.Result {
	for {
		n := h.refs.Load()
		if n < 0 {
			return driver.Success
		}
		if h.refs.CompareAndSwap(n, n+letGo) {
			if c := h.gone.Load(); c != nil {
				close(*c)
			}
			if n == 0 {
				return h.destroyOnce()
			}
			return driver.Success
		}
	}
}

// closed reports whether the owner has let go.
func (h *handle) closed() bool { return h.refs.Load() < 0 }

// closing returns a channel that is closed when the owner lets go. Who waits for
// it asks closed once afterwards: the owner may have let go before.
func (h *handle) closing() <-chan struct{} {
	if c := h.gone.Load(); c != nil {
		return *c
	}
	c := make(chan struct{})
	if h.gone.CompareAndSwap(nil, &c) {
		return c
	}
	return *h.gone.Load()
}

// destroyOnce destroys the object unless another goroutine does: a failing
// acquire brings the count back to letGo for a second time.
func (h *handle) destroyOnce() driver.Result {
	if !h.refs.CompareAndSwap(letGo, destroyed) {
		return driver.Success
	}
	h.dev.driver.live[h.kind].Add(-1)
	var r driver.Result
	switch h.kind {
	case kindEvent, kindPoolBuffer: // the one disturbs no capture, the other looks for them itself
		r = h.destroy()
	default:
		r = h.dev.driver.relaxed(h.destroy)
	}
	if h.held != nil {
		h.held.release()
	}
	if r == driver.ErrorDeinitialized { // the process is ending, and everything with it
		return driver.Success
	}
	return r
}

func (h *handle) destroy() driver.Result {
	if h.mem != nil {
		return h.mem.free(h)
	}
	api := h.dev.driver.api
	if e := h.spare.Swap(0); e != 0 {
		h.dev.destroyEvent(driver.Event(e))
	}
	switch h.kind {
	case kindEvent:
		return h.dev.call(func() driver.Result { return api.EventDestroy(driver.Event(h.native)) })
	case kindStream:
		return h.dev.call(func() driver.Result { return api.StreamDestroy(driver.Stream(h.native)) })
	case kindBuffer:
		return h.freeMemory()
	case kindModule:
		return h.dev.bound(func() driver.Result { return api.ModuleUnload(driver.Module(h.native)) })
	case kindGraph:
		return h.dev.call(func() driver.Result { return api.GraphDestroy(driver.Graph(h.native)) })
	case kindGraphExec:
		return h.dev.call(func() driver.Result { return api.GraphExecDestroy(driver.GraphExec(h.native)) })
	default: // the stream is someone else's
		return driver.Success
	}
}

// freeMemory frees memory that nothing uses any more. Plain device memory waits
// for the device first.
func (h *handle) freeMemory() driver.Result {
	api := h.dev.driver.api
	return h.dev.bound(func() driver.Result {
		switch h.kind {
		case kindHostBuffer:
			return api.MemFreeHost(h.pointer)
		case kindHostFunc:
			driver.HostFunc(h.native).Release()
			return driver.Success
		case kindRegistered:
			return api.MemHostUnregister(h.pointer)
		default:
			return api.MemFree(driver.DevicePtr(h.native))
		}
	})
}

// foreign reports whether h is a stream that the library did not make and that
// can be destroyed; default streams cannot.
func (h *handle) foreign() bool { return h.kind == kindExternalStream && h.native != 0 }

// onStream calls f with the native stream of h. The default stream needs its
// device's context current, created ones do not.
func (h *handle) onStream(f func(driver.Stream) driver.Result) driver.Result {
	native := driver.Stream(h.native)
	if native != 0 {
		if r := f(native); r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.bound(func() driver.Result { return f(native) })
}

// capturing reports whether the stream of h is being captured, or depends on a
// capture.
func (h *handle) capturing() bool {
	status := driver.CaptureNone
	r := h.onStream(func(s driver.Stream) (r driver.Result) {
		status, r = h.dev.driver.api.StreamIsCapturing(s)
		return r
	})
	return r != driver.Success || status != driver.CaptureNone
}

// forget is the net under a forgotten Close: it runs when the owner has become
// garbage, on the goroutine that runs all of the program's cleanups. Nobody
// waits for the handle then: who waits keeps the owner alive.
func (h *handle) forget() {
	if h.closed() {
		return
	}
	h.gone.Store(nil)                 // made in a synctest bubble perhaps, where this goroutine may not close it
	if h.kind != kindExternalStream { // of that nothing is lost
		h.dev.driver.forgotten.Add(1)
	}
	switch h.kind {
	case kindBuffer, kindModule, kindGraph, kindGraphExec: // freeing them, or what they hold, waits for the device, which other cleanups must not
		go h.closeRelaxed()
	default:
		h.closeRelaxed()
	}
}

func (h *handle) closeRelaxed() {
	if r := h.dev.driver.relaxed(h.close); r != driver.Success {
		h.cleanupFailed(r)
	}
}

// relaxed runs f while the calling thread's capture mode is relaxed. What the
// library does on its own behalf, waiting and cleaning up, goes through it:
// in the default mode a query on any thread kills a capture that runs on
// another.
func (d *Driver) relaxed(f func() driver.Result) driver.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if previous, r := d.api.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed); r == driver.Success {
		defer d.api.ThreadExchangeStreamCaptureMode(previous)
	}
	return f()
}

// kind says what a handle is of.
type kind uint8

const (
	kindStream kind = iota
	kindExternalStream
	kindEvent
	kindBuffer
	kindPoolBuffer
	kindHostBuffer
	kindRegistered
	kindModule
	kindGraph
	kindGraphExec
	kindHostFunc
	kinds
)

func (k kind) String() string {
	return [kinds]string{"stream", "external stream", "event", "buffer", "buffer", "host buffer",
		"registered memory", "module", "graph", "executable graph", "host function"}[k]
}
