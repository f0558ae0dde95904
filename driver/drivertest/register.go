package drivertest

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Registered host memory, and copies of rectangles.

var registerRows = []row{
	{"driver: registered memory is copied like pinned memory", 0, registeredCopies},
	{"driver: memory can be registered once", 0, registeredTwice},
	{"driver: only registered memory can be unregistered", 0, registeredUnknown},
	{"driver: host memory that a device sees has a device pointer", 0, devicePointers},
	{"driver: releasing host memory waits for the device", 0, releaseWaits},
}

var rectangleRows = []row{
	{"driver: a rectangle is copied and nothing else", 0, copyRectangle},
	{"driver: a copy of rows needs pitches that hold them", 0, rectanglePitch},
	{"driver: a rectangle without bytes is no work", 0, rectangleNothing},
}

// register returns n bytes that the driver did not allocate, registered until
// the row ends unless the row unregisters them.
func (b *bench) register(n int) (buf []byte, unregister func() driver.Result) {
	b.t.Helper()
	buf = make([]byte, n)
	b.ok("MemHostRegister", b.in(0, func() driver.Result {
		return b.MemHostRegister(hostPointer(buf), uint64(n), driver.MemHostRegisterPortable|driver.MemHostRegisterDeviceMap)
	}))
	var gone atomic.Bool
	unregister = func() driver.Result {
		gone.Store(true)
		defer runtime.KeepAlive(buf)
		return b.in(0, func() driver.Result { return b.MemHostUnregister(hostPointer(buf)) })
	}
	b.t.Cleanup(func() {
		if !gone.Load() {
			b.releaseAll() // it waits for the device
			unregister()
		}
	})
	return buf, unregister
}

// outside returns memory that the driver does not know.
func outside(n int) []byte { return make([]byte, n) }

func registeredCopies(b *bench) {
	const n = 4096
	s, x := b.stream(0), b.mem(0, n)
	src, unregister := b.register(n)
	dst, _ := b.register(n)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	h := b.hold(s) // with other memory the copy back would wait for it
	b.ok("MemcpyAsync from registered memory", b.MemcpyAsync(x, driver.HostPtr(hostPointer(src)), n, s))
	b.ok("MemcpyAsync to registered memory", b.MemcpyAsync(driver.HostPtr(hostPointer(dst))+1, x+1, n-2, s))
	b.ok("MemcpyDtoHAsync to registered memory", b.MemcpyDtoHAsync(hostPointer(dst), x, 1, s))
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.bytes("copied to the device and back", dst[:n-1], src[:n-1])
	b.filled("the byte behind it", dst[n-1:], 0)
	b.ok("MemHostUnregister", unregister())
}

func registeredTwice(b *bench) {
	buf, _ := b.register(8192)
	for what, part := range map[string][]byte{"again": buf, "its middle": buf[4096:]} {
		b.want("MemHostRegister of "+what, b.in(0, func() driver.Result {
			return b.MemHostRegister(hostPointer(part), uint64(len(part)), 0)
		}), driver.ErrorHostMemoryAlreadyRegistered)
	}
	for what, r := range map[string]func() driver.Result{
		"allocated memory": func() driver.Result { return b.MemHostRegister(hostPointer(b.host), 4096, 0) },
		"nothing":          func() driver.Result { return b.MemHostRegister(hostPointer(outside(4096)), 0, 0) },
	} {
		b.want("MemHostRegister of "+what, b.in(0, r), driver.ErrorInvalidValue)
	}
}

func registeredUnknown(b *bench) {
	buf, unregister := b.register(8192)
	for _, c := range []struct {
		what string
		at   unsafe.Pointer
		want driver.Result
	}{
		{"unknown memory", hostPointer(outside(4096)), driver.ErrorHostMemoryNotRegistered},
		{"the middle", hostPointer(buf[4096:]), driver.ErrorInvalidValue},
		{"allocated memory", hostPointer(b.host), driver.ErrorInvalidValue},
	} {
		b.want("MemHostUnregister of "+c.what, b.in(0, func() driver.Result { return b.MemHostUnregister(c.at) }), c.want)
	}
	b.want("MemFreeHost of registered memory",
		b.in(0, func() driver.Result { return b.MemFreeHost(hostPointer(buf)) }), driver.ErrorInvalidValue)
	b.ok("MemHostUnregister", unregister())
	b.want("MemHostUnregister again", unregister(), driver.ErrorHostMemoryNotRegistered)
}

func devicePointers(b *bench) {
	same, r := b.DeviceGetAttribute(driver.AttributeCanUseHostPointerForRegisteredMem, b.dev[0])
	b.ok("DeviceGetAttribute", r)
	if same == 0 {
		b.t.Skipf("the device sees registered memory at other addresses")
	}
	registered, _ := b.register(4096)
	b.with(0, func() {
		for what, buf := range map[string][]byte{"registered": registered, "allocated": b.host} {
			p, r := b.MemHostGetDevicePointer(hostPointer(buf), 0)
			b.ok("MemHostGetDevicePointer of memory that was "+what, r)
			equal(b, "the device pointer of memory that was "+what, p, driver.HostPtr(hostPointer(buf)))
		}
		_, r := b.MemHostGetDevicePointer(hostPointer(outside(4096)), 0)
		b.want("MemHostGetDevicePointer of unknown memory", r, driver.ErrorInvalidValue)
	})
}

func releaseWaits(b *bench) {
	s := b.stream(0)
	_, unregister := b.register(4096)
	var host unsafe.Pointer
	b.with(0, func() {
		var r driver.Result
		host, r = b.MemHostAlloc(4096, 0)
		b.ok("MemHostAlloc", r)
	})
	for what, f := range map[string]func() driver.Result{
		"MemHostUnregister": unregister,
		"MemFreeHost":       func() driver.Result { return b.in(0, func() driver.Result { return b.MemFreeHost(host) }) },
	} {
		h := b.hold(s)
		c := b.start(f)
		b.blocked(what, c)
		h.release()
		b.returns(what, c)
	}
}

// rectangle returns a copy of width bytes of height rows between two arrays of
// rows of pitch bytes.
func rectangle(dst, src driver.DevicePtr, pitch, width, height uint64) driver.Memcpy2D {
	return driver.Memcpy2D{
		SrcMemoryType: driver.MemoryUnified, SrcDevice: src, SrcPitch: pitch,
		DstMemoryType: driver.MemoryUnified, DstDevice: dst, DstPitch: pitch,
		WidthInBytes: width, Height: height,
	}
}

func copyRectangle(b *bench) {
	const pitch, rows = 64, 16
	s, x, src, dst := b.stream(0), b.mem(0, 2*pitch*rows), b.counting(pitch*rows), b.pinned(pitch*rows)
	// The rectangle of 24 × 5 at (8, 3) goes to (17, 2) of the device's array,
	// whose rows are twice as long, and on from there to (1, 11).
	to := rectangle(x, driver.HostPtr(hostPointer(src)), pitch, 24, 5)
	to.SrcXInBytes, to.SrcY, to.DstXInBytes, to.DstY, to.DstPitch = 8, 3, 17, 2, 2*pitch
	back := rectangle(driver.HostPtr(hostPointer(dst)), x, pitch, 24, 5)
	back.SrcXInBytes, back.SrcY, back.DstXInBytes, back.DstY, back.SrcPitch = 17, 2, 1, 11, 2*pitch
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 0xee, 2*pitch*rows, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(driver.HostPtr(hostPointer(dst)), 0xdd, pitch*rows, s))
	b.ok("Memcpy2DAsync to the device", b.Memcpy2DAsync(to, s))
	b.ok("Memcpy2DAsync to the host", b.Memcpy2DAsync(back, s))
	onDevice, onHost := bytes.Repeat([]byte{0xee}, 2*pitch*rows), bytes.Repeat([]byte{0xdd}, pitch*rows)
	for row := range 5 {
		moved := src[(3+row)*pitch+8:][:24]
		copy(onDevice[(2+row)*2*pitch+17:], moved)
		copy(onHost[(11+row)*pitch+1:], moved)
	}
	b.bytes("the array on the device", b.read(s, x, 2*pitch*rows), onDevice)
	b.bytes("the array on the host", dst, onHost)
}

func rectanglePitch(b *bench) {
	s, x, host := b.stream(0), b.mem(0, 1024), driver.HostPtr(hostPointer(b.pinned(1024)))
	short := rectangle(x, host, 128, 64, 4)
	short.SrcPitch = 32
	b.want("Memcpy2DAsync with a short pitch of the source", b.Memcpy2DAsync(short, s), driver.ErrorInvalidValue)
	short.SrcPitch, short.DstPitch = 128, 32
	b.want("Memcpy2DAsync with a short pitch of the destination", b.Memcpy2DAsync(short, s), driver.ErrorInvalidValue)
	b.ok("Memcpy2DAsync of one row without pitches", b.Memcpy2DAsync(rectangle(x, host, 0, 64, 1), s))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}

func rectangleNothing(b *bench) {
	s, x, host := b.stream(0), b.mem(0, 1024), b.pinned(1024)
	b.ok("MemsetD8Async", b.MemsetD8Async(x, 0xee, 1024, s))
	for what, c := range map[string]driver.Memcpy2D{
		"no width":  rectangle(x, driver.HostPtr(hostPointer(host)), 128, 0, 4),
		"no height": rectangle(x, driver.HostPtr(hostPointer(host)), 128, 64, 0),
	} {
		b.ok("Memcpy2DAsync with "+what, b.Memcpy2DAsync(c, s))
	}
	b.filled("the memory", b.read(s, x, 1024), 0xee)
}
