package drivertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// Memory: allocation, copies and sets, and words that streams write and wait
// for. Every check is of bytes, with those around them, so that a call that
// counts wrongly is found out.

var copyRows = []row{
	{"driver: copies between host and device", 0, copyHost},
	{"driver: copies by unified address", 0, copyUnified},
	{"driver: copies between devices", 2, copyDevices},
	{"driver: sets of 8, 16 and 32 bits", 0, memsets},
}

var memoryRows = []row{
	{"driver: an allocation of nothing is refused", 0, allocNothing},
	{"driver: an allocation lessens free memory", 0, allocLessens},
	{"driver: an address tells its allocation", 0, addressRange},
	{"driver: an allocation ends behind its last byte", 0, addressBehind},
	{"driver: pinned memory is for all devices", 2, pinnedForAll},
	{"driver: a stream writes a word that the host sees", 0, writeValue},
	{"driver: a stream waits for a word in four ways", 0, waitValue},
}

// counting returns n bytes of pinned memory that differ from their neighbours.
func (b *bench) counting(n uint64) []byte {
	b.t.Helper()
	buf := b.pinned(n)
	for i := range buf {
		buf[i] = byte(i*7 + i>>8)
	}
	return buf
}

func copyHost(b *bench) {
	const n = 4096
	s, x, y := b.stream(0), b.mem(0, n), b.mem(0, n)
	src := b.counting(n)
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 0xee, n, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(y, 0xee, n, s))
	b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(x+3, hostPointer(src), n-8, s))
	b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(y+1, x+3, n-8, s))
	around := func(before, after int) []byte {
		return slices.Concat(bytes.Repeat([]byte{0xee}, before), src[:n-8], bytes.Repeat([]byte{0xee}, after))
	}
	b.bytes("copied from the host", b.read(s, x, n), around(3, 5))
	b.bytes("copied on the device", b.read(s, y, n), around(1, 7))
}

func copyUnified(b *bench) {
	const n = 4096
	s, x, y := b.stream(0), b.mem(0, n), b.mem(0, n)
	src, dst, far := b.counting(n), b.pinned(n), b.pinned(n)
	unified := func(buf []byte) driver.DevicePtr { return driver.HostPtr(hostPointer(buf)) }
	b.ok("MemcpyAsync to the device", b.MemcpyAsync(x, unified(src), n, s))
	b.ok("MemcpyAsync on the device", b.MemcpyAsync(y, x, n, s))
	b.ok("MemcpyAsync to the host", b.MemcpyAsync(unified(dst), y, n, s))
	b.ok("MemcpyAsync on the host", b.MemcpyAsync(unified(far), unified(dst), n, s))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.bytes("copied to the device and back", dst, src)
	b.bytes("copied once more", far, src)
}

func copyDevices(b *bench) {
	const n = 4096
	s, x, y, z := b.stream(0), b.mem(0, n), b.mem(1, n), b.mem(0, n)
	src := b.counting(n)
	b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(x, hostPointer(src), n, s))
	b.ok("MemcpyPeerAsync", b.in(0, func() driver.Result {
		return b.MemcpyPeerAsync(y, b.ctx[1], x, b.ctx[0], n, s)
	}))
	b.ok("MemcpyAsync", b.MemcpyAsync(z, y, n, s))
	b.bytes("copied to the other device and back", b.read(s, z, n), src)
}

func memsets(b *bench) {
	const n = 1024
	s := b.stream(0)
	for _, c := range []struct {
		what  string
		set   func(driver.DevicePtr) driver.Result
		value []byte
	}{
		{"MemsetD8Async", func(p driver.DevicePtr) driver.Result { return b.MemsetD8Async(p, 0x12, n, s) }, []byte{0x12}},
		{"MemsetD16Async", func(p driver.DevicePtr) driver.Result { return b.MemsetD16Async(p, 0x1234, n/2, s) },
			binary.NativeEndian.AppendUint16(nil, 0x1234)},
		{"MemsetD32Async", func(p driver.DevicePtr) driver.Result { return b.MemsetD32Async(p, 0x12345678, n/4, s) },
			binary.NativeEndian.AppendUint32(nil, 0x12345678)},
	} {
		p := b.mem(0, n+32)
		b.ok("MemsetD8Async", b.MemsetD8Async(p, 0xee, n+32, s))
		b.ok(c.what, c.set(p+16))
		edge := bytes.Repeat([]byte{0xee}, 16)
		want := slices.Concat(edge, bytes.Repeat(c.value, n/len(c.value)), edge)
		b.bytes(c.what, b.read(s, p, n+32), want)
	}
}

func allocNothing(b *bench) {
	b.with(0, func() {
		_, r := b.MemAlloc(0)
		b.want("MemAlloc of 0 bytes", r, driver.ErrorInvalidValue)
	})
}

func allocLessens(b *bench) {
	// Half of it must show: a driver allocates in blocks, and others may free
	// memory meanwhile.
	const n = 32 << 20
	b.with(0, func() {
		before, total, r := b.MemGetInfo()
		b.ok("MemGetInfo", r)
		p, r := b.MemAlloc(n)
		b.ok("MemAlloc", r)
		after, _, r := b.MemGetInfo()
		b.ok("MemFree", b.MemFree(p))
		b.ok("MemGetInfo", r)
		if before > total || after+n/2 > before {
			b.t.Fatalf("of %d bytes, %d were free before and %d after an allocation of %d", total, before, after, n)
		}
	})
}

func addressRange(b *bench) {
	b.with(0, func() {
		for _, offset := range []driver.DevicePtr{0, 1, arenaSize / 2, arenaSize - 1} {
			base, n, r := b.MemGetAddressRange(b.devices[0] + offset)
			b.ok("MemGetAddressRange", r)
			equal(b, fmt.Sprintf("where the allocation of its byte %d begins", offset), base, b.devices[0])
			equal(b, fmt.Sprintf("how long the allocation of its byte %d is", offset), n, arenaSize)
		}
	})
}

// addressBehind asks no more than that: another allocation may begin there.
func addressBehind(b *bench) {
	b.with(0, func() {
		behind := b.devices[0] + arenaSize
		base, n, r := b.MemGetAddressRange(behind)
		if r == driver.Success && base < behind {
			b.t.Fatalf("MemGetAddressRange: %d bytes at %#x hold what is behind %d bytes at %#x", n, base, arenaSize, b.devices[0])
		}
	})
}

func pinnedForAll(b *bench) {
	const n = 4096
	w, src := b.word(), b.counting(n)
	for d := range b.ctx {
		s, x := b.stream(d), b.mem(d, n)
		w.store(0)
		b.mark(s, w)
		b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(x, hostPointer(src), n, s))
		b.bytes("copied to the device and back", b.read(s, x, n), src)
		equal(b, "what the device wrote", w.load(), 1)
	}
}

func writeValue(b *bench) {
	s, w := b.stream(0), b.word()
	h := b.hold(s)
	b.need("StreamWriteValue32", b.StreamWriteValue32(s, w.addr(), 0xfeedbeef, 0))
	b.unreached("a write on a held stream", s, w)
	h.release()
	b.reached("the write", s, w)
	equal(b, "the word", w.load(), 0xfeedbeef)
}

func waitValue(b *bench) {
	s := b.stream(0)
	for _, c := range []struct {
		what                       string
		flags, value, closed, open uint32
	}{
		{"GEQ, which is signed", driver.StreamWaitValueGEQ, 1, ^uint32(0), 2},
		{"EQ", driver.StreamWaitValueEQ, 5, 6, 5},
		{"AND", driver.StreamWaitValueAND, 2, 5, 6},
		{"NOR", driver.StreamWaitValueNOR, 0xf0, 0xffffff0f, 0xf},
	} {
		w := b.word()
		h := b.holdOn(s, c.flags, c.value, c.closed, c.open)
		b.mark(s, w)
		b.unreached("work behind "+c.what, s, w)
		h.release()
		b.reached("work behind "+c.what, s, w)
	}
}
