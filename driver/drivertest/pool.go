package drivertest

import (
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Memory pools: allocation and release in stream order.

var poolRows = []row{
	{"rule 29 memory freed and taken again on a stream is used in order", 0, poolReuse},
	{"rule 29 memory goes to another stream only after its free", 0, poolOtherStream},
	{"driver: pool memory needs no context on a created stream", 0, poolBare},
	{"driver: nothing from a pool has no address", 0, poolNothing},
	{"driver: too much from a pool is refused", 0, poolTooMuch},
	{"driver: pool memory can be freed once", 0, poolDoubleFree},
	{"driver: pool and plain memory can be freed either way", 0, poolEitherFree},
	{"driver: pool memory has no IPC handle", 0, poolNoHandle},
	{"driver: pool memory has no words for streams", 0, poolNoWords},
	{"driver: a copy may not run over the end of pool memory", 0, poolBounds},
	{"driver: memory from outside cannot be freed in a capture", 0, poolCapturedFree},
	{"driver: allocation and release end a global capture", 0, poolEndsCapture},
}

var poolFigureRows = []row{
	{"driver: a pool counts what is used", 0, poolUsed},
	{"driver: a pool releases memory at a synchronization", 0, poolReleases},
	{"driver: a pool keeps memory up to its threshold, until trimmed", 0, poolKeeps},
}

// pool returns a device's default pool; it skips where the device has none.
func (b *bench) pool(device int) driver.MemPool {
	b.t.Helper()
	p, r := b.DeviceGetDefaultMemPool(b.dev[device])
	b.need("DeviceGetDefaultMemPool", r)
	return p
}

// alloc returns n bytes of a pool, taken in the order of s. The row must free
// them: the bench does not.
func (b *bench) alloc(p driver.MemPool, n uint64, s driver.Stream) driver.DevicePtr {
	b.t.Helper()
	addr, r := b.MemAllocFromPoolAsync(n, p, s)
	b.ok("MemAllocFromPoolAsync", r)
	return addr
}

func (b *bench) free(addr driver.DevicePtr, s driver.Stream) {
	b.t.Helper()
	b.ok("MemFreeAsync", b.MemFreeAsync(addr, s))
}

func poolReuse(b *bench) {
	const n = 4096
	s, pool, first, second := b.stream(0), b.pool(0), b.pinned(n), b.pinned(n)
	b.free(b.alloc(pool, n, s), s)
	h := b.hold(s)
	for v, host := range [][]byte{first, second} {
		p := b.alloc(pool, n, s)
		b.ok("MemsetD8Async", b.MemsetD8Async(p, 0x11<<v, n, s))
		b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), p, n, s))
		b.free(p, s)
	}
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.filled("the first allocation", first, 0x11)
	b.filled("the second allocation", second, 0x22)
}

func poolOtherStream(b *bench) {
	const n = 4096
	s, other, pool, host := b.stream(0), b.stream(0), b.pool(0), b.pinned(n)
	p := b.alloc(pool, n, s)
	b.ok("MemsetD8Async", b.MemsetD8Async(p, 0x11, n, s))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	h := b.hold(s)
	b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), p, n, s))
	b.free(p, s)
	q := b.alloc(pool, n, other)
	b.ok("MemsetD8Async", b.MemsetD8Async(q, 0x22, n, other))
	// A driver may also make the other stream wait.
	for end := time.Now().Add(settle); b.StreamQuery(other) == driver.ErrorNotReady && time.Now().Before(end); {
		time.Sleep(20 * time.Microsecond)
	}
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.filled("what the held stream read before it freed", host, 0x11)
	b.filled("the other stream's allocation", b.read(other, q, n), 0x22)
	b.free(q, other)
}

func poolBare(b *bench) {
	s, w := b.stream(0), b.word()
	var pool driver.MemPool
	b.bare(func() {
		pool = b.pool(0)
		p := b.alloc(pool, 64, s)
		b.ok("MemsetD8Async", b.MemsetD8Async(p, 1, 64, s))
		b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(unsafe.Pointer(w.p), p, 4, s))
		b.free(p, s)
		b.ok("MemPoolTrimTo", b.MemPoolTrimTo(pool, 0))
		_, r := b.MemPoolGetAttribute(pool, driver.MemPoolUsedCurrent)
		b.ok("MemPoolGetAttribute", r)
	})
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	equal(b, "the word in pool memory", w.load(), 0x01010101)
}

func poolNothing(b *bench) {
	s := b.stream(0)
	p, r := b.MemAllocFromPoolAsync(0, b.pool(0), s)
	b.ok("MemAllocFromPoolAsync of 0 bytes", r)
	equal(b, "the address of 0 bytes", p, 0)
	b.free(p, s)
}

func poolTooMuch(b *bench) {
	s, pool := b.stream(0), b.pool(0)
	total, r := b.DeviceTotalMem(b.dev[0])
	b.ok("DeviceTotalMem", r)
	_, r = b.MemAllocFromPoolAsync(8*total, pool, s)
	b.want("MemAllocFromPoolAsync of eight times the device's memory", r, driver.ErrorOutOfMemory)
	b.free(b.alloc(pool, 64, s), s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func poolDoubleFree(b *bench) {
	s := b.stream(0)
	p := b.alloc(b.pool(0), 4096, s)
	b.want("MemFreeAsync of the middle", b.MemFreeAsync(p+256, s), driver.ErrorInvalidValue)
	b.free(p, s)
	b.want("MemFreeAsync again", b.MemFreeAsync(p, s), driver.ErrorInvalidValue)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.want("MemFreeAsync again, after a synchronization", b.MemFreeAsync(p, s), driver.ErrorInvalidValue)
}

func poolEitherFree(b *bench) {
	s := b.stream(0)
	p := b.alloc(b.pool(0), 4096, s)
	b.with(0, func() {
		b.ok("MemFree of pool memory", b.MemFree(p))
		b.want("MemFreeAsync after that", b.MemFreeAsync(p, s), driver.ErrorInvalidValue)
		q, r := b.MemAlloc(4096)
		b.ok("MemAlloc", r)
		b.ok("MemFreeAsync of plain memory", b.MemFreeAsync(q, s))
		b.ok("StreamSynchronize", b.StreamSynchronize(s))
		b.want("MemFree after that", b.MemFree(q), driver.ErrorInvalidValue)
	})
}

func poolNoHandle(b *bench) {
	s := b.stream(0)
	p := b.alloc(b.pool(0), 4096, s)
	defer b.MemFreeAsync(p, s)
	b.with(0, func() {
		_, r := b.IPCGetMemHandle(p)
		b.want("IPCGetMemHandle", r, driver.ErrorInvalidValue)
	})
}

func poolNoWords(b *bench) {
	s := b.stream(0)
	p := b.alloc(b.pool(0), 4096, s)
	defer b.MemFreeAsync(p, s)
	if r := b.StreamWriteValue32(s, p, 1, 0); r != driver.ErrorInvalidValue {
		b.need("StreamWriteValue32", r)
		b.want("StreamWriteValue32", r, driver.ErrorInvalidValue)
	}
}

func poolBounds(b *bench) {
	const n = 4096
	s, host := b.stream(0), b.pinned(n+1)
	p := b.alloc(b.pool(0), n, s)
	defer b.MemFreeAsync(p, s)
	from := driver.HostPtr(hostPointer(host))
	b.ok("MemcpyAsync of all", b.MemcpyAsync(p, from, n, s))
	b.want("MemcpyAsync of one byte more", b.MemcpyAsync(p, from, n+1, s), driver.ErrorInvalidValue)
}

func poolCapturedFree(b *bench) {
	s, other := b.stream(0), b.stream(0)
	p := b.alloc(b.pool(0), 4096, other)
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
	b.ok("StreamEndCapture", b.capture(s, driver.CaptureModeRelaxed, func() {
		b.want("MemFreeAsync on the captured stream", b.MemFreeAsync(p, s), driver.ErrorInvalidValue)
		b.capturing("the captured stream", s, driver.CaptureActive)
		b.free(p, other)
	}))
}

func poolEndsCapture(b *bench) {
	s, other, pool := b.stream(0), b.stream(0), b.pool(0)
	p := b.alloc(pool, 64, other)
	buf := make([]byte, 4096)
	registered, _ := b.register(4096)
	for _, c := range []struct {
		what string
		call func() driver.Result
	}{
		{"MemAllocFromPoolAsync", func() driver.Result {
			_, r := b.MemAllocFromPoolAsync(64, pool, other)
			return r
		}},
		{"MemFreeAsync", func() driver.Result { return b.MemFreeAsync(p, other) }},
		{"MemPoolTrimTo", func() driver.Result { return b.MemPoolTrimTo(pool, 0) }},
		{"MemHostRegister", func() driver.Result {
			return b.in(0, func() driver.Result { return b.MemHostRegister(hostPointer(buf), 4096, 0) })
		}},
		{"MemHostUnregister", func() driver.Result {
			return b.in(0, func() driver.Result { return b.MemHostUnregister(hostPointer(registered)) })
		}},
	} {
		b.endsCapture(s, c.what, c.call)
	}
	b.ok("MemFreeAsync beside a relaxed capture", b.capture(s, driver.CaptureModeRelaxed, func() { b.free(p, other) }))
}

// endsCapture fails the row unless call, on another thread, is refused while s is
// captured in global mode, and ends that capture.
func (b *bench) endsCapture(s driver.Stream, what string, call func() driver.Result) {
	b.t.Helper()
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		b.want(what+" on another thread", b.elsewhere(call), driver.ErrorStreamCaptureUnsupported)
		b.capturing("the stream whose capture was ended", s, driver.CaptureInvalidated)
	})
	b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
}

// figure reads a figure of a pool.
func (b *bench) figure(p driver.MemPool, a driver.MemPoolAttribute) uint64 {
	b.t.Helper()
	v, r := b.MemPoolGetAttribute(p, a)
	b.ok("MemPoolGetAttribute", r)
	return v
}

func (b *bench) setPool(p driver.MemPool, a driver.MemPoolAttribute, v uint64) {
	b.t.Helper()
	b.ok("MemPoolSetAttribute", b.MemPoolSetAttribute(p, a, v))
}

// threshold sets how much memory a pool keeps until the row ends.
func (b *bench) threshold(p driver.MemPool, v uint64) {
	b.t.Helper()
	before := b.figure(p, driver.MemPoolReleaseThreshold)
	b.t.Cleanup(func() { b.MemPoolSetAttribute(p, driver.MemPoolReleaseThreshold, before) })
	b.setPool(p, driver.MemPoolReleaseThreshold, v)
	equal(b, "the threshold", b.figure(p, driver.MemPoolReleaseThreshold), v)
}

// poolSize is more than the suite leaves unused in a pool.
const poolSize = 10 << 20

func poolUsed(b *bench) {
	s, pool := b.stream(0), b.pool(0)
	b.setPool(pool, driver.MemPoolUsedHigh, 0)
	before := b.figure(pool, driver.MemPoolUsedCurrent)
	p := b.alloc(pool, poolSize, s)
	equal(b, "used with an allocation", b.figure(pool, driver.MemPoolUsedCurrent), before+poolSize)
	if reserved := b.figure(pool, driver.MemPoolReservedCurrent); reserved < before+poolSize {
		b.t.Fatalf("%d bytes are reserved, which is less than is used", reserved)
	}
	b.free(p, s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	equal(b, "used after the free", b.figure(pool, driver.MemPoolUsedCurrent), before)
	equal(b, "the most that was used", b.figure(pool, driver.MemPoolUsedHigh), before+poolSize)
	r := b.MemPoolSetAttribute(pool, driver.MemPoolUsedHigh, 5)
	b.want("MemPoolSetAttribute of a high-water mark to 5", r, driver.ErrorInvalidValue)
	b.setPool(pool, driver.MemPoolUsedHigh, 0)
	equal(b, "the most that was used since the reset", b.figure(pool, driver.MemPoolUsedHigh), before)
}

// reservedAfter returns how much is reserved with an allocation of poolSize and
// when it has been freed and the stream synchronized.
func (b *bench) reservedAfter(pool driver.MemPool) (with, after uint64) {
	b.t.Helper()
	s := b.stream(0)
	p := b.alloc(pool, poolSize, s)
	with = b.figure(pool, driver.MemPoolReservedCurrent)
	b.free(p, s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	return with, b.figure(pool, driver.MemPoolReservedCurrent)
}

func poolReleases(b *bench) {
	pool := b.pool(0)
	b.threshold(pool, 0)
	if with, after := b.reservedAfter(pool); after+poolSize > with {
		b.t.Fatalf("%d bytes were reserved, %d are after the free and a synchronization", with, after)
	}
}

func poolKeeps(b *bench) {
	pool := b.pool(0)
	b.threshold(pool, ^uint64(0))
	with, after := b.reservedAfter(pool)
	equal(b, "reserved after a synchronization", after, with)
	b.ok("MemPoolTrimTo", b.MemPoolTrimTo(pool, 0))
	trimmed := b.figure(pool, driver.MemPoolReservedCurrent)
	if trimmed+poolSize > after {
		b.t.Fatalf("%d bytes were reserved, %d are after trimming", after, trimmed)
	}
	if high := b.figure(pool, driver.MemPoolReservedHigh); high < with {
		b.t.Fatalf("the most that was reserved is %d, but %d were", high, with)
	}
}
