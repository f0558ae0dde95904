package cuda

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// handle is a native object of the driver with a count of the calls in flight.
// Close lets go of it, and destroys it unless a call is in flight: then the last
// call does. So a Close during a wait on another goroutine is safe, and
// no call ever sees a destroyed handle. Most events are not destroyed but used again,
// see [eventPool].
//
// It is an allocation of its own, apart from the Stream, Event or Buffer that
// owns it, so that a cleanup can still reach it when its owner is garbage.
//
// What the calls of the hot path look at stands together: the first 64 bytes for all
// kinds, the next for streams and events.
type handle struct {
	// word counts in one step what changes together: a record on a stream ends the
	// call that holds the stream, and counts.
	//
	//	bits 24 to 63	of a stream: how many events it has recorded
	//	bit 23		it is destroyed, or being so
	//	bit 22		the owner has let go
	//	bits 0 to 21	references
	word     atomic.Uint64
	native   uint64 // CUstream, CUevent, CUdeviceptr, CUmodule, CUgraph or CUgraphExec
	dev      *Device
	kind     kind
	blocking bool          // of an event: waits for it sleep from the start
	pooled   bool          // of an event: it goes back to the pool
	used     bool          // and comes from there
	replaced atomic.Bool   // of an event: it has another now, and this one goes with the last wait
	mem      *lifetime     // of memory
	shared   *share        // of what is not its own alone
	captured atomic.Uint64 // of an event: the capture in which it was last recorded; 0 if in none
	waits    atomic.Int64  // waits on the host that closing h would end

	covers coverage // of an event
	// Of a stream:
	uses tally // of memory that has another home
	// effects counts what a wait for it must conclude, concluded is up to which of them
	// that was done; see conclude.go.
	effects tally
	spare   atomic.Uintptr // the event that WaitStream records
	joins   atomic.Pointer[joins]

	memory    lifetime     // what mem points to
	lasting   atomic.Int64 // see retain
	concluded atomic.Uint64
	freed     atomic.Bool            // of a stream: it is among the device's freed
	flags     uint32                 // of a pooled event
	event     *pooledEvent           // likewise
	held      *held                  // of a graph: what it needs
	watched   *watched               // of an event; the watcher's mutex guards it
	queue     *queue                 // of a stream; likewise
	round     *round                 // of what stands for all work of a device, on drivers that have no event for that
	given     *sharedKey             // the handle that other processes open it by
	afterFree atomic.Pointer[func()] // of pinned host memory
	// pointer is, for pinned host memory, the address again, as the pointer that
	// the driver gave.
	pointer unsafe.Pointer

	// Two handles share no cache line: their words are written by every call, and
	// goroutines that work on different streams should not feel each other.
	_ [8]byte
}

const (
	references   = 1<<22 - 1
	letGo        = 1 << 22
	destroyed    = 1 << 23
	life         = references | letGo | destroyed
	recordsShift = 24
)

func newHandle(d *Device, k kind, native uint64) *handle {
	d.driver.live[k].Add(1)
	return &handle{native: native, kind: k, dev: d}
}

// acquire takes a reference for a call; it fails once the handle is closed.
func (h *handle) acquire() bool {
	return h.word.Add(1)&letGo == 0 || h.refuse()
}

func (h *handle) refuse() bool {
	h.release()
	return false
}

// borrow is acquire for who asks for an event and leaves no trace: of a pooled one it
// takes no reference. Before the answer is believed, overtaken must be asked.
func (h *handle) borrow() bool {
	if h.pooled {
		return !h.closed()
	}
	return h.acquire()
}

// giveBack is the reverse of borrow.
func (h *handle) giveBack() {
	if !h.pooled {
		h.release()
	}
}

// overtaken reports whether who has borrowed h may have been answered for another's
// event, because h was closed meanwhile.
func (h *handle) overtaken() bool { return h.pooled && h.closed() }

// tryRetain takes a reference for as long as somebody else has one, if only for a call
// or as another object of the same: the owner may have let go.
func (h *handle) tryRetain() bool {
	for {
		w := h.word.Load()
		if w&destroyed != 0 || w&letGo != 0 && w&references == 0 {
			return false
		}
		if h.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// retain takes a reference that may last, while the caller holds one. Memory, marks and
// graphs have so many that they are counted by themselves, and are one reference
// together.
func (h *handle) retain() {
	if h.lasting.Add(1) == 1 {
		h.word.Add(1)
	}
}

// letOff is the reverse of retain.
func (h *handle) letOff() {
	if h.lasting.Add(-1) == 0 {
		h.release()
	}
}

// release gives a call's reference back.
func (h *handle) release() {
	if h.word.Add(^uint64(0))&life == letGo {
		h.destroyLast()
	}
}

// releaseRecorded is release for a stream after a record on it. It returns the word as
// it is then.
func (h *handle) releaseRecorded() uint64 {
	w := h.word.Add(1<<recordsShift - 1)
	if w&life == letGo {
		h.destroyLast()
	}
	return w
}

// recorded counts a record on a stream that stays held. It returns the word.
func (h *handle) recorded() uint64 { return h.word.Add(1 << recordsShift) }

// records returns how many events a stream has recorded, modulo 1 << 40.
func (h *handle) records() uint64 { return h.word.Load() >> recordsShift }

// releaseAfterRecord is called after each record of an event, which has held it.
func (h *handle) releaseAfterRecord() {
	if h.closed() {
		h.destroyLast()
	}
}

// releaseElsewhere is release for who must not wait: the driver may hold up
// whoever destroys something.
func (h *handle) releaseElsewhere() {
	if h.word.Add(^uint64(0))&life == letGo {
		h.dev.chores.add(h.destroyLast)
	}
}

func (h *handle) destroyLast() {
	if r := h.destroyOnce(); r != driver.Success {
		h.cleanupFailed(r)
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
		w := h.word.Load()
		if w&letGo != 0 {
			return driver.Success
		}
		if h.word.CompareAndSwap(w, w|letGo) {
			if h.waits.Load() != 0 {
				h.dev.watcher.closing(h)
			}
			if w&references == 0 {
				return h.destroyOnce()
			}
			return driver.Success
		}
	}
}

// closed reports whether the owner has let go.
func (h *handle) closed() bool { return h.word.Load()&letGo != 0 }

// destroyOnce destroys the object unless another goroutine does: a failing
// acquire brings the count of references back to 0 for a second time. Of an event,
// records under way count as references too: see [Event.Record].
func (h *handle) destroyOnce() driver.Result {
	w := h.word.Load()
	if w&life != letGo || h.covers.recording() || !h.word.CompareAndSwap(w, w|destroyed) {
		return driver.Success
	}
	defer h.dev.driver.live[h.kind].Add(-1)
	var r driver.Result
	switch {
	case h.kind == kindEvent, h.kind == kindMilestone, h.mem != nil: // the ones disturb no capture, memory looks for them itself
		r = h.destroy()
	default:
		r = h.dev.driver.relaxed(h.destroy)
	}
	if h.held != nil {
		h.held.release()
	}
	if h.given != nil {
		h.dev.driver.sharing.takeBack(h)
	}
	if r == driver.ErrorDeinitialized { // the process is ending, and everything with it
		h.noteFree()
		return driver.Success
	}
	return r
}

func (h *handle) destroy() driver.Result {
	if h.mem != nil {
		return h.mem.free(h)
	}
	if e := h.spare.Load(); e != 0 {
		h.dev.driver.captures.alone(func() driver.Result { // it may be part of one
			h.dev.destroyEvent(driver.Event(e))
			return driver.Success
		})
	}
	if h.shared != nil {
		return h.shared.release(h)
	}
	switch h.kind {
	case kindEvent, kindMilestone:
		if h.pooled {
			h.dev.events.put(h)
			return driver.Success
		}
		return h.dev.call(func(api *driver.API) driver.Result { return api.EventDestroy(driver.Event(h.native)) })
	case kindStream:
		h.dev.freed.forget(h)
		if h.aloneIfCaptured() {
			defer h.dev.driver.captures.touching.Unlock()
		}
		return h.dev.call(func(api *driver.API) driver.Result { return api.StreamDestroy(driver.Stream(h.native)) })
	case kindBuffer:
		return h.freeMemory()
	case kindModule:
		return h.dev.bound(func(api *driver.API) driver.Result { return api.ModuleUnload(driver.Module(h.native)) })
	case kindGraph:
		return h.dev.call(func(api *driver.API) driver.Result { return api.GraphDestroy(driver.Graph(h.native)) })
	case kindGraphExec:
		return h.dev.call(func(api *driver.API) driver.Result { return api.GraphExecDestroy(driver.GraphExec(h.native)) })
	default: // the stream is someone else's
		h.dev.freed.forget(h)
		return driver.Success
	}
}

// freeMemory frees memory that nothing uses any more. Plain device memory waits
// for the device first.
func (h *handle) freeMemory() driver.Result {
	if h.shared != nil {
		return h.shared.release(h)
	}
	r := h.dev.bound(func(api *driver.API) driver.Result {
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
	if r == driver.Success {
		h.noteFree()
	}
	return r
}

// noteFree calls the function of [HostBuffer.AfterFree].
func (h *handle) noteFree() {
	if h.kind != kindHostBuffer && h.kind != kindRegistered {
		return
	}
	if f := h.afterFree.Swap(&noted); f != nil {
		(*f)()
	}
}

// noted stands for the function of AfterFree once the memory is free.
var noted = func() {}

// foreign reports whether h is a stream that the library did not make and that
// can be destroyed; default streams cannot.
func (h *handle) foreign() bool { return h.kind == kindExternalStream && h.native != 0 }

// forget is the net under a forgotten Close: it runs when the owner has become
// garbage, on the goroutine that runs all of the program's cleanups. Nobody
// waits for the handle then: who waits keeps the owner alive.
func (h *handle) forget() {
	if h.closed() {
		return
	}
	if h.kind != kindExternalStream { // of that nothing is lost
		h.dev.driver.forgotten.Add(1)
	}
	switch h.kind {
	case kindBuffer, kindModule, kindGraph, kindGraphExec: // freeing them, or what they hold, waits for the device, which other cleanups must not
		if h.mem != nil && len(h.mem.list()) > 0 { // and for streams of other devices, perhaps for long
			go h.closeRelaxed()
		} else {
			h.dev.chores.add(h.closeRelaxed)
		}
	default:
		h.closeRelaxed()
	}
}

func (h *handle) closeRelaxed() {
	if r := h.dev.driver.relaxed(h.close); r != driver.Success {
		h.cleanupFailed(r)
	}
}

// String names the object in errors.
func (h *handle) String() string {
	return fmt.Sprintf("the %v at %#x of device %d", h.kind, h.native, h.dev.index)
}

// kind says what a handle is of.
type kind uint8

const (
	kindStream kind = iota
	kindExternalStream
	kindEvent
	kindMilestone
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
	return [kinds]string{"stream", "external stream", "event", "event", "buffer", "buffer", "host buffer",
		"registered memory", "module", "graph", "executable graph", "host function"}[k]
}
