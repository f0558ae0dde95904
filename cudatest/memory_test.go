package cudatest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestMissingWaitReadsStaleData(t *testing.T) {
	for name, wait := range map[string]bool{"without": false, "with": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				writer, reader := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
				e, p, h := b.event(0, driver.EventDisableTiming), b.mem(0, 4096), b.pinned(4096)
				b.gpu.Run(Handle(writer), ms)
				b.ok(b.MemsetD32Async(p, 0x01020304, 1024, writer))
				b.ok(b.EventRecord(e, writer))
				if wait {
					b.ok(b.StreamWaitEvent(reader, e, 0))
				}
				b.ok(b.MemcpyDtoHAsync(at(h), p, 4096, reader))
				b.ok(b.StreamSynchronize(reader))
				if wait {
					require.Equal(t, bytes.Repeat([]byte{4, 3, 2, 1}, 1024), h)
				} else {
					require.Equal(t, bytes.Repeat([]byte{Poison}, 4096), h)
				}
			})
		})
	}
}

func TestCopiesTakeTheirTime(t *testing.T) {
	synctestBed(t, Config{Devices: 2, Latency: 2 * ms, HostBandwidth: 1e9, PeerBandwidth: 2e9, DeviceBandwidth: 4e9}, func(b *bed) {
		const n = 4_000_000
		s := b.stream(0, driver.StreamNonBlocking)
		p, q, far, h := b.mem(0, n), b.mem(0, n), b.mem(1, n), b.pinned(n)
		for want, f := range map[int]func() driver.Result{
			2 + 4: func() driver.Result { return b.MemcpyHtoDAsync(p, at(h), n, s) },
			2 + 2: func() driver.Result { return b.MemcpyPeerAsync(far, b.ctx[1], p, b.ctx[0], n, s) },
			2 + 1: func() driver.Result { return b.MemcpyDtoDAsync(q, p, n, s) },
		} {
			require.EqualValues(t, want, took(func() { b.ok(f()); b.ok(b.StreamSynchronize(s)) })/ms)
		}
		pageable := make([]byte, n)
		require.EqualValues(t, 6, took(func() { b.ok(b.MemcpyDtoHAsync(at(pageable), p, n, s)) })/ms, "returns when it is written")
		pageable[0] = 1
		require.Zero(t, took(func() { b.ok(b.MemcpyHtoDAsync(p, at(pageable), n, s)) }))
		pageable[0] = 2
		b.ok(b.MemcpyDtoHAsync(at(pageable), p, n, s))
		require.EqualValues(t, 1, pageable[0], "was read at once")
	})
}

func TestRanges(t *testing.T) {
	b := newBed(t, Config{Devices: 2, Memory: 1 << 20})
	s := b.stream(0, driver.StreamNonBlocking)
	p, far, h := b.mem(0, 1000), b.mem(1, 1000), b.pinned(1000)
	hp := driver.HostPtr(at(h))
	for name, r := range map[string]driver.Result{
		"past the end of device memory": b.MemcpyHtoDAsync(p+1, at(h), 1000, s),
		"past the end of host memory":   b.MemcpyDtoHAsync(at(h[1:]), p, 1000, s),
		"nil":                           b.MemcpyDtoHAsync(nil, p, 1000, s),
		"from nowhere":                  b.MemcpyDtoDAsync(p, 4096, 8, s),
		"before the beginning":          b.MemcpyAsync(p-1, hp, 8, s),
		"into the gap":                  b.MemsetD8Async(p+1000, 0, 1, s),
		"a size that overflows":         b.MemsetD32Async(p, 0, 1<<62, s),
		"odd address of 16 bits":        b.MemsetD16Async(p+1, 0, 1, s),
		"odd address of 32 bits":        b.MemsetD32Async(p+2, 0, 1, s),
		"another device's":              b.MemcpyPeerAsync(p, b.ctx[1], far, b.ctx[1], 8, s),
		"odd word":                      b.StreamWriteValue32(s, hp+2, 0, 0),
		"unknown flag":                  b.StreamWaitValue32(s, hp, 0, 4),
		"free":                          free(b, p+256),
		"free host memory":              free(b, hp),
	} {
		require.Equal(t, driver.ErrorInvalidValue, r, name)
	}
	for name, r := range map[string]driver.Result{
		"all":           b.MemcpyHtoDAsync(p, at(h), 1000, s),
		"unified":       b.MemcpyAsync(hp, far, 1000, s),
		"nothing":       b.MemcpyAsync(0, 0, 0, s),
		"set host":      b.MemsetD16Async(hp, 0x0101, 500, s),
		"set nothing":   b.MemsetD32Async(0, 0, 0, s),
		"free nothing":  free(b, 0),
		"free the last": free(b, p),
	} {
		require.Equal(t, driver.Success, r, name)
	}
	require.Equal(t, driver.ErrorInvalidValue, b.MemsetD8Async(p, 0, 1, s), "freed")
}

func TestAddressRange(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	p, next, far, host := b.mem(0, 1000), b.mem(0, 1000), b.mem(1, 1000), driver.HostPtr(at(b.pinned(1000)))
	b.on(0, func() {
		for addr, want := range map[driver.DevicePtr]driver.DevicePtr{
			p: p, p + 1: p, p + 999: p, next: next, host + 999: host,
			0: 0, p + 1000: 0, next - 1: 0, 4711: 0,
			far: 0, // of another device than the current one
		} {
			base, n, r := b.MemGetAddressRange(addr)
			if want == 0 {
				require.Equal(t, driver.ErrorNotFound, r)
				continue
			}
			b.ok(r)
			require.Equal(t, want, base)
			require.EqualValues(t, 1000, n)
		}
		b.ok(b.MemFree(p))
		_, _, r := b.MemGetAddressRange(p)
		require.Equal(t, driver.ErrorNotFound, r)
	})
	_, _, r := b.MemGetAddressRange(next)
	require.Equal(t, driver.ErrorInvalidContext, r)
}

func free(b *bed, p driver.DevicePtr) (r driver.Result) {
	b.on(0, func() { r = b.MemFree(p) })
	return r
}

func TestOutOfMemory(t *testing.T) {
	b := newBed(t, Config{Memory: 1024})
	b.on(0, func() {
		p, r := b.MemAlloc(513)
		b.ok(r)
		require.Zero(t, p%alignment)
		free, total, r := b.MemGetInfo()
		b.ok(r)
		require.Equal(t, [2]uint64{256, 1024}, [2]uint64{free, total})
		_, r = b.MemAlloc(257)
		require.Equal(t, driver.ErrorOutOfMemory, r)
		_, r = b.MemAlloc(1<<64 - 1)
		require.Equal(t, driver.ErrorOutOfMemory, r)
		_, r = b.MemAlloc(0)
		require.Equal(t, driver.ErrorInvalidValue, r)
		b.ok(b.MemFree(p))
		require.Equal(t, driver.ErrorInvalidValue, b.MemFree(p))
		p, r = b.MemAlloc(1024)
		b.ok(r)
		b.ok(b.MemFree(p))
	})
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

func TestRectangles(t *testing.T) {
	b := newBed(t, Config{})
	s, p, h := b.stream(0, driver.StreamNonBlocking), b.mem(0, 1024), driver.HostPtr(at(b.pinned(1024)))
	good := rectangle(p, h, 128, 64, 8)
	for name, change := range map[string]func(*driver.Memcpy2D){
		"a type of memory":          func(c *driver.Memcpy2D) { c.SrcMemoryType = 1 },
		"a row too many":            func(c *driver.Memcpy2D) { c.Height++ },
		"shifted out at the end":    func(c *driver.Memcpy2D) { c.DstY++ },
		"x beyond the pitch":        func(c *driver.Memcpy2D) { c.SrcXInBytes = 65 },
		"x overflows":               func(c *driver.Memcpy2D) { c.SrcXInBytes = 1<<64 - 1 },
		"y overflows":               func(c *driver.Memcpy2D) { c.SrcY = 1 << 60 },
		"height overflows":          func(c *driver.Memcpy2D) { c.Height = 1<<57 + 1 },
		"no pitch":                  func(c *driver.Memcpy2D) { c.SrcPitch = 0 },
		"from nowhere":              func(c *driver.Memcpy2D) { c.SrcDevice = 4096 },
		"beginning before its time": func(c *driver.Memcpy2D) { c.DstDevice-- },
	} {
		c := good
		change(&c)
		require.Equal(t, driver.ErrorInvalidValue, b.Memcpy2DAsync(c, s), name)
	}
	for name, change := range map[string]func(*driver.Memcpy2D){
		"all":                     func(*driver.Memcpy2D) {},
		"to the last byte":        func(c *driver.Memcpy2D) { c.SrcXInBytes, c.DstXInBytes = 64, 64 },
		"a great pitch, one row":  func(c *driver.Memcpy2D) { c.SrcPitch, c.Height = 3<<30, 1 },
		"the last row's gap":      func(c *driver.Memcpy2D) { c.SrcDevice += 64 },
		"without bytes, anywhere": func(c *driver.Memcpy2D) { c.SrcDevice, c.Height = 0, 0 },
	} {
		c := good
		change(&c)
		require.Equal(t, driver.Success, b.Memcpy2DAsync(c, s), name)
	}
}

func TestRectanglesTakeTheirTime(t *testing.T) {
	synctestBed(t, Config{Latency: 2 * ms, HostBandwidth: 1e6}, func(b *bed) {
		s, p, h := b.stream(0, driver.StreamNonBlocking), b.mem(0, 8000), driver.HostPtr(at(b.pinned(8000)))
		require.EqualValues(t, 2+4, took(func() {
			b.ok(b.Memcpy2DAsync(rectangle(p, h, 1000, 500, 8), s))
			b.ok(b.StreamSynchronize(s))
		})/ms, "4000 bytes")
	})
}

// Many goroutines pass a counter through streams that only events order.
func TestStress(t *testing.T) {
	b := newBed(t, Config{Devices: 2, Latency: -1})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			s := [2]driver.Stream{b.stream(i%2, driver.StreamNonBlocking), b.stream(1-i%2, driver.StreamDefault)}
			e := [2]driver.Event{b.event(i%2, 0), b.event(1-i%2, driver.EventDisableTiming)}
			buf := [2]driver.DevicePtr{b.mem(i%2, 256), b.mem(1-i%2, 256)}
			h := b.pinned(256)
			for n := range byte(100) {
				k := random.IntN(2)
				release := func() {}
				if n%8 == 0 {
					release = b.gpu.Hold(Handle(s[k]))
				}
				b.ok(b.MemsetD8Async(buf[k], n, 256, s[k]))
				b.ok(b.EventRecord(e[k], s[k]))
				b.ok(b.StreamWaitEvent(s[1-k], e[k], 0))
				b.ok(b.MemcpyDtoDAsync(buf[1-k], buf[k], 256, s[1-k]))
				b.ok(b.MemcpyDtoHAsync(at(h), buf[1-k], 256, s[1-k]))
				b.ok(b.EventRecord(e[1-k], s[1-k]))
				wg.Go(release)
				b.ok(b.EventSynchronize(e[1-k]))
				require.Equal(t, n, h[255])
			}
			for k := range 2 {
				b.ok(b.StreamDestroy(s[k]))
				b.ok(b.EventDestroy(e[k]))
				b.ok(free(b, buf[k]))
			}
			b.on(0, func() { b.ok(b.MemFreeHost(at(h))) })
		})
	}
	wg.Wait()
	require.Empty(t, b.gpu.Problems())
}
