package drivertest

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// What rows make and do on a bench: streams, events, memory, holds, and calls
// that block.

// stream makes a non-blocking stream of the device.
func (b *bench) stream(device int) driver.Stream {
	b.t.Helper()
	return b.streamWith(device, driver.StreamNonBlocking, 0)
}

func (b *bench) streamWith(device int, flags uint32, priority int32) (s driver.Stream) {
	b.t.Helper()
	b.with(device, func() {
		var r driver.Result
		s, r = b.StreamCreateWithPriority(flags, priority)
		b.ok("StreamCreateWithPriority", r)
	})
	b.streams[s] = device
	return s
}

// destroyStream destroys s before the row ends.
func (b *bench) destroyStream(s driver.Stream) driver.Result {
	delete(b.streams, s)
	return b.StreamDestroy(s)
}

// event makes an event of the device without timing.
func (b *bench) event(device int) driver.Event {
	b.t.Helper()
	return b.eventWith(device, driver.EventDisableTiming)
}

func (b *bench) eventWith(device int, flags uint32) (e driver.Event) {
	b.t.Helper()
	b.with(device, func() {
		var r driver.Result
		e, r = b.EventCreate(flags)
		b.ok("EventCreate", r)
	})
	b.events[e] = true
	return e
}

// destroyEvent destroys e before the row ends.
func (b *bench) destroyEvent(e driver.Event) driver.Result {
	delete(b.events, e)
	return b.EventDestroy(e)
}

// record makes an event of the device and records it on s.
func (b *bench) record(device int, s driver.Stream) driver.Event {
	b.t.Helper()
	e := b.event(device)
	b.ok("EventRecord", b.EventRecord(e, s))
	return e
}

// take returns where the next piece of n bytes begins in an arena. Host and
// device arenas are used up together.
func (b *bench) take(n uint64) uint64 {
	b.t.Helper()
	at := b.used
	if b.used += (n + pieceAlign - 1) / pieceAlign * pieceAlign; b.used > arenaSize {
		b.t.Fatalf("the row asks for more than %d bytes of memory", arenaSize)
	}
	return at
}

// pinned returns n bytes of host memory that every device sees. Host memory in
// a row is always pinned: with any other, a copy may wait for the stream.
func (b *bench) pinned(n uint64) []byte {
	b.t.Helper()
	at := b.take(n)
	return b.host[at : at+n : at+n]
}

// mem returns n bytes of the device's memory.
func (b *bench) mem(device int, n uint64) driver.DevicePtr {
	b.t.Helper()
	return b.devices[device] + driver.DevicePtr(b.take(n))
}

// hostPointer returns where buf begins, for calls that take host memory.
func hostPointer(buf []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(buf)) }

// read returns a copy of n bytes of a device's memory, read in order on s.
func (b *bench) read(s driver.Stream, p driver.DevicePtr, n uint64) []byte {
	b.t.Helper()
	host := b.pinned(n)
	b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), p, n, s))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	return bytes.Clone(host)
}

// filled fails the row unless every byte is v.
func (b *bench) filled(what string, got []byte, v byte) {
	b.t.Helper()
	b.bytes(what, got, bytes.Repeat([]byte{v}, len(got)))
}

// bytes fails the row unless got is want; it names the first difference.
func (b *bench) bytes(what string, got, want []byte) {
	b.t.Helper()
	for i := range want {
		if got[i] != want[i] {
			b.t.Fatalf("%s: byte %d of %d is %#02x, want %#02x", what, i, len(want), got[i], want[i])
		}
	}
}

// A word is four bytes of pinned memory that processor and GPU both read and
// write while the other runs.
type word struct{ p *uint32 }

func (b *bench) word() word {
	b.t.Helper()
	w := word{(*uint32)(hostPointer(b.pinned(4)))}
	w.store(0)
	return w
}

func (w word) load() uint32           { return atomic.LoadUint32(w.p) }
func (w word) store(v uint32)         { atomic.StoreUint32(w.p, v) }
func (w word) addr() driver.DevicePtr { return driver.HostPtr(unsafe.Pointer(w.p)) }

// mark makes s set w to 1 when it gets there.
func (b *bench) mark(s driver.Stream, w word) {
	b.t.Helper()
	b.need("StreamWriteValue32", b.StreamWriteValue32(s, w.addr(), 1, 0))
}

// reached waits until s has set w. It keeps asking about s, because some drivers
// submit work in batches and the simulated GPU moves in calls alone.
func (b *bench) reached(what string, s driver.Stream, w word) {
	b.t.Helper()
	for w.load() == 0 {
		if b.late() {
			b.t.Fatalf("%s: did not happen", what)
		}
		b.StreamQuery(s)
		time.Sleep(20 * time.Microsecond)
	}
}

// unreached fails the row if s sets w within a short while.
func (b *bench) unreached(what string, s driver.Stream, w word) {
	b.t.Helper()
	b.StreamQuery(s)
	time.Sleep(settle)
	b.StreamQuery(s)
	if w.load() != 0 {
		b.t.Fatalf("%s: happened too early", what)
	}
}

// A hold keeps a stream busy until it is released.
type hold struct {
	w    word
	open uint32
}

// release lets the stream go on. It may be called twice, from any goroutine.
func (h *hold) release() { h.w.store(h.open) }

// hold keeps s busy: all that is enqueued on it from now on waits for the
// hold's release.
func (b *bench) hold(s driver.Stream) *hold {
	b.t.Helper()
	return b.holdOn(s, driver.StreamWaitValueGEQ, 1, 0, 1)
}

// holdOn makes s compare a word with value as flags say. The word is closed,
// with which the stream waits, until the hold sets it to open.
func (b *bench) holdOn(s driver.Stream, flags, value, closed, open uint32) *hold {
	b.t.Helper()
	h := &hold{b.word(), open}
	h.w.store(closed)
	b.mu.Lock()
	if b.expired {
		h.release()
	}
	b.holds = append(b.holds, h)
	b.mu.Unlock()
	// With a context, because the default stream needs one; a hold of it is for
	// the first device.
	b.need("StreamWaitValue32", b.in(b.streams[s], func() driver.Result {
		return b.StreamWaitValue32(s, h.w.addr(), value, flags)
	}))
	return h
}

// A call is a driver call on a goroutine of its own.
type call struct {
	done chan struct{}
	r    driver.Result // once done is closed
}

// start calls f, which may block, on another goroutine and thread.
func (b *bench) start(f func() driver.Result) *call {
	c := &call{done: make(chan struct{})}
	b.calls.Add(1)
	go func() {
		defer b.calls.Done()
		defer close(c.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c.r = f()
	}()
	return c
}

// blocked fails the row if c returns within a short while.
func (b *bench) blocked(what string, c *call) {
	b.t.Helper()
	select {
	case <-c.done:
		b.t.Fatalf("%s returned too early: %v", what, outcome(c.r))
	case <-time.After(settle):
	}
}

// returns waits for c to return and fails the row unless it succeeded.
func (b *bench) returns(what string, c *call) {
	b.t.Helper()
	<-c.done
	b.ok(what, c.r)
}
