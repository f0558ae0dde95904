package cudatest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func (b *bed) pool(device int) driver.MemPool {
	b.t.Helper()
	p, r := b.DeviceGetDefaultMemPool(driver.Device(device))
	b.ok(r)
	return p
}

// alloc takes n bytes of the pool of the first device.
func (b *bed) alloc(n uint64, s driver.Stream) driver.DevicePtr {
	b.t.Helper()
	p, r := b.MemAllocFromPoolAsync(n, b.pool(0), s)
	b.ok(r)
	return p
}

func (b *bed) figure(a driver.MemPoolAttribute) uint64 {
	b.t.Helper()
	v, r := b.MemPoolGetAttribute(b.pool(0), a)
	b.ok(r)
	return v
}

// contents reads n bytes in order on s.
func (b *bed) contents(p driver.DevicePtr, n uint64, s driver.Stream) []byte {
	b.t.Helper()
	host := make([]byte, n)
	b.ok(b.MemcpyDtoHAsync(at(host), p, n, s))
	return host
}

func of(v byte, n int) []byte { return bytes.Repeat([]byte{v}, n) }

func TestPoolGivesTheSameMemoryAgain(t *testing.T) {
	b := newBed(t, Config{})
	s, other := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
	p := b.alloc(1000, s)
	require.Zero(t, p%poolAlignment)
	b.ok(b.MemsetD8Async(p, 1, 1000, s))
	release := b.gpu.Hold(Handle(s))
	b.ok(b.MemFreeAsync(p, s))
	far := b.alloc(1000, other)
	require.NotEqual(t, p, far, "its free has not been reached")
	require.Equal(t, p, b.alloc(900, s), "at once on its own stream")
	b.ok(b.MemFreeAsync(p, s))
	release()
	b.ok(b.StreamSynchronize(other)) // lets the timeline advance
	b.setPool(driver.MemPoolReleaseThreshold, 1<<20)
	b.ok(b.MemFreeAsync(far, s))
	b.ok(b.MemFreeAsync(b.alloc(64, s), s))
	q := b.alloc(1000, other)
	require.Contains(t, []driver.DevicePtr{p, far}, q)
	require.Equal(t, of(Poison, 1000), b.contents(q, 1000, other))
	b.ok(b.MemFreeAsync(q, other))
}

func (b *bed) setPool(a driver.MemPoolAttribute, v uint64) {
	b.t.Helper()
	b.ok(b.MemPoolSetAttribute(b.pool(0), a, v))
}

// Whoever uses memory before its allocation or after its release is found out by
// its bytes.
func TestPoolShowsWrongLifetimes(t *testing.T) {
	for _, c := range []struct {
		name string
		use  func(b *bed, s, other driver.Stream, read func(driver.DevicePtr))
		want byte
	}{
		{"right", func(b *bed, s, other driver.Stream, read func(driver.DevicePtr)) {
			p, e := b.alloc(64, s), b.event(0, driver.EventDisableTiming)
			b.ok(b.MemsetD8Async(p, 1, 64, s))
			b.ok(b.EventRecord(e, s))
			b.ok(b.StreamWaitEvent(other, e, 0))
			read(p)
			b.ok(b.EventRecord(e, other))
			b.ok(b.StreamWaitEvent(s, e, 0))
			b.ok(b.MemFreeAsync(p, s))
			b.ok(b.MemsetD8Async(b.alloc(64, s), 2, 64, s))
		}, 1},
		{"written before its allocation", func(b *bed, s, other driver.Stream, read func(driver.DevicePtr)) {
			b.gpu.Run(Handle(s), ms)
			p := b.alloc(64, s)
			b.ok(b.MemsetD8Async(p, 1, 64, other))
			b.gpu.Run(Handle(other), 2*ms)
			read(p)
		}, Poison},
		{"read after its release", func(b *bed, s, other driver.Stream, read func(driver.DevicePtr)) {
			p := b.alloc(64, s)
			b.ok(b.MemsetD8Async(p, 1, 64, s))
			b.gpu.Run(Handle(other), ms)
			read(p)
			b.ok(b.MemFreeAsync(p, s))
		}, Poison},
		{"read after its release and reuse", func(b *bed, s, other driver.Stream, read func(driver.DevicePtr)) {
			p := b.alloc(64, s)
			b.ok(b.MemsetD8Async(p, 1, 64, s))
			b.gpu.Run(Handle(other), ms)
			read(p)
			b.ok(b.MemFreeAsync(p, s))
			b.ok(b.MemsetD8Async(b.alloc(64, s), 2, 64, s))
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				s, other := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
				host := b.pinned(64)
				c.use(b, s, other, func(p driver.DevicePtr) { b.ok(b.MemcpyDtoHAsync(at(host), p, 64, other)) })
				b.ok(b.StreamSynchronize(s))
				b.ok(b.StreamSynchronize(other))
				require.Equal(t, of(c.want, 64), host)
			})
		})
	}
}

func TestPoolFigures(t *testing.T) {
	b := newBed(t, Config{Memory: 1 << 20})
	s := b.stream(0, driver.StreamNonBlocking)
	figures := func() [4]uint64 {
		return [4]uint64{b.figure(driver.MemPoolReservedCurrent), b.figure(driver.MemPoolReservedHigh),
			b.figure(driver.MemPoolUsedCurrent), b.figure(driver.MemPoolUsedHigh)}
	}
	b.setPool(driver.MemPoolReleaseThreshold, 1024)
	p, q := b.alloc(1, s), b.alloc(1025, s)
	require.Equal(t, [4]uint64{2048, 2048, 1026, 1026}, figures(), "chunks are rounded to 512")
	require.EqualValues(t, 1<<20-2048, b.unused())
	b.ok(b.MemFreeAsync(p, s))
	b.ok(b.MemFreeAsync(q, s))
	require.Equal(t, [4]uint64{2048, 2048, 0, 1026}, figures())
	p = b.alloc(800, s) // in the chunk of 1536
	require.Equal(t, [4]uint64{2048, 2048, 800, 1026}, figures())
	b.ok(b.StreamSynchronize(s))
	require.Equal(t, [4]uint64{1536, 2048, 800, 1026}, figures(), "what is used stays")
	b.setPool(driver.MemPoolUsedHigh, 0)
	b.setPool(driver.MemPoolReservedHigh, 0)
	require.Equal(t, [4]uint64{1536, 1536, 800, 800}, figures())
	b.ok(b.MemFreeAsync(p, s))
	b.setPool(driver.MemPoolReleaseThreshold, 1<<20)
	b.ok(b.StreamSynchronize(s))
	require.Equal(t, [4]uint64{1536, 1536, 0, 800}, figures())
	b.ok(b.MemPoolTrimTo(b.pool(0), 1536))
	require.EqualValues(t, 1536, b.figure(driver.MemPoolReservedCurrent))
	b.ok(b.MemPoolTrimTo(b.pool(0), 1535))
	require.EqualValues(t, 0, b.figure(driver.MemPoolReservedCurrent))
	require.EqualValues(t, 1<<20, b.unused())
	for _, a := range []driver.MemPoolAttribute{driver.MemPoolReservedCurrent, driver.MemPoolUsedCurrent, 99} {
		require.Equal(t, driver.ErrorInvalidValue, b.MemPoolSetAttribute(b.pool(0), a, 0))
	}
	_, r := b.MemPoolGetAttribute(b.pool(0), 99)
	require.Equal(t, driver.ErrorInvalidValue, r)
}

// unused returns how much memory of the first device is free.
func (b *bed) unused() (free uint64) {
	b.t.Helper()
	b.on(0, func() {
		var r driver.Result
		free, _, r = b.MemGetInfo()
		b.ok(r)
	})
	return free
}

func TestPoolOutOfMemory(t *testing.T) {
	b := newBed(t, Config{Memory: 4096})
	s := b.stream(0, driver.StreamNonBlocking)
	b.setPool(driver.MemPoolReleaseThreshold, 1<<20)
	b.ok(b.MemFreeAsync(b.alloc(512, s), s))
	p := b.alloc(4096, s) // takes the place of the unused chunk
	_, r := b.MemAllocFromPoolAsync(1, b.pool(0), s)
	require.Equal(t, driver.ErrorOutOfMemory, r)
	_, r = b.MemAllocFromPoolAsync(1<<64-1, b.pool(0), s)
	require.Equal(t, driver.ErrorOutOfMemory, r)
	release := b.gpu.Hold(Handle(s))
	b.ok(b.MemFreeAsync(p, s))
	b.on(0, func() {
		_, r := b.MemAlloc(1024)
		require.Equal(t, driver.ErrorOutOfMemory, r, "its free has not been reached")
	})
	release()
	b.ok(free(b, b.mem(0, 1024)))
}

func TestNoMemoryPools(t *testing.T) {
	for none, want := range map[bool]int32{true: 0, false: 1} {
		b := newBed(t, Config{NoMemoryPools: none})
		v, r := b.DeviceGetAttribute(driver.AttributeMemoryPools, 0)
		b.ok(r)
		require.Equal(t, want, v)
	}
	with, without := newBed(t, Config{}), newBed(t, Config{NoMemoryPools: true})
	_, r := without.DeviceGetDefaultMemPool(0)
	require.Equal(t, driver.ErrorNotSupported, r)
	_, r = with.DeviceGetDefaultMemPool(1)
	require.Equal(t, driver.ErrorInvalidDevice, r)
	_, r = without.MemAllocFromPoolAsync(1, with.pool(0), without.stream(0, 0))
	require.Equal(t, driver.ErrorInvalidValue, r)
}

func TestPoolMisuseAndLeaks(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	p, q := b.alloc(1000, s), b.alloc(64, s)
	registered := make([]byte, 4096)
	b.on(0, func() { b.ok(b.MemHostRegister(at(registered), 4096, 0)) })
	b.ok(b.MemFreeAsync(q, s))
	require.Equal(t, driver.ErrorInvalidValue, b.MemFreeAsync(q, s))
	require.Equal(t, driver.ErrorInvalidValue, b.MemsetD8Async(q, 0, 1, s))
	require.Equal(t, driver.ErrorInvalidValue, b.MemPoolTrimTo(1, 0))
	b.ok(b.MemFreeAsync(0, s))
	b.ok(b.StreamDestroy(s))
	problems := b.gpu.Problems()
	require.Len(t, problems, 5)
	for i, want := range []string{
		"4096 bytes of registered host memory at",
		"1000 bytes of pool memory at",
		"misuse: MemFreeAsync: ",
		"are not within an allocation",
		"misuse: MemPoolTrimTo: no memory pool has the handle 0x1",
	} {
		require.Contains(t, problems[i], want)
		require.Contains(t, problems[i], "pool_test.go")
	}
	b.on(0, func() {
		b.ok(b.MemFree(p))
		b.ok(b.MemHostUnregister(at(registered)))
	})
	require.Len(t, b.gpu.Problems(), 3)
}

func TestPoolsEndWithTheirProcess(t *testing.T) {
	for name, end := range map[string]func(p *Process, b *bed){
		"killed":   func(p *Process, _ *bed) { p.Kill() },
		"released": func(_ *Process, b *bed) { b.ok(b.DevicePrimaryCtxRelease(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{Memory: 1 << 20})
			p := b.gpu.NewProcess()
			other := newBedOn(t, b.gpu, p.API())
			require.NotEqual(t, b.pool(0), other.pool(0))
			s := other.stream(0, driver.StreamNonBlocking)
			other.setPool(driver.MemPoolReleaseThreshold, 1<<20)
			used := other.alloc(4096, s)
			other.ok(other.MemFreeAsync(other.alloc(8192, s), s))
			require.Equal(t, driver.ErrorInvalidValue, b.MemFreeAsync(used, b.stream(0, 0)), "of another process")
			b.gpu.Hold(Handle(s))
			other.ok(other.MemFreeAsync(other.alloc(512, s), s))
			require.EqualValues(t, 1<<20-4096-8192-512, b.unused())
			end(p, other)
			require.EqualValues(t, 1<<20, b.unused())
		})
	}
}

func TestPoolAfterAFault(t *testing.T) {
	b := newBed(t, Config{})
	s, pool := b.stream(0, driver.StreamNonBlocking), b.pool(0)
	p := b.alloc(64, s)
	b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
	buf := make([]byte, 64)
	b.on(0, func() {
		for name, f := range map[string]func() driver.Result{
			"alloc": func() driver.Result { _, r := b.MemAllocFromPoolAsync(64, pool, s); return r },
			"get": func() driver.Result {
				_, r := b.MemPoolGetAttribute(pool, driver.MemPoolUsedCurrent)
				return r
			},
			"set":      func() driver.Result { return b.MemPoolSetAttribute(pool, driver.MemPoolUsedHigh, 0) },
			"trim":     func() driver.Result { return b.MemPoolTrimTo(pool, 0) },
			"free":     func() driver.Result { return b.MemFreeAsync(p, s) },
			"register": func() driver.Result { return b.MemHostRegister(at(buf), 64, 0) },
			"pointer":  func() driver.Result { _, r := b.MemHostGetDevicePointer(at(buf), 0); return r },
			"copy":     func() driver.Result { return b.Memcpy2DAsync(rectangle(p, p, 8, 8, 8), s) },
			"peer":     func() driver.Result { return b.CtxEnablePeerAccess(b.ctx[0], 0) },
		} {
			require.Equal(t, driver.ErrorLaunchFailed, f(), name)
		}
	})
}

func TestPoolInACapture(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	p := b.alloc(64, s)
	status := func() driver.CaptureStatus {
		c, r := b.StreamIsCapturing(s)
		b.ok(r)
		return c
	}
	b.ok(b.StreamBeginCapture(s, driver.CaptureModeRelaxed))
	require.Equal(t, driver.ErrorInvalidValue, b.MemFreeAsync(p, s))
	require.Equal(t, driver.CaptureActive, status())
	_, r := b.MemAllocFromPoolAsync(64, b.pool(0), s)
	require.Equal(t, driver.ErrorStreamCaptureUnsupported, r)
	require.Equal(t, driver.CaptureInvalidated, status())
	_, r = b.StreamEndCapture(s)
	require.Equal(t, driver.ErrorStreamCaptureInvalidated, r)
	b.ok(b.MemFreeAsync(p, s))
}

// In a cleanup, which runs outside the bubble, MemFree waits for nothing; the
// memory is still not given out while it is in use.
func TestPoolFreeOutsideTheBubble(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	bubble(t, func(b *bed) {
		s, other := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		b.setPool(driver.MemPoolReleaseThreshold, 1<<20)
		p := b.alloc(64, s)
		b.gpu.Run(Handle(s), 5*ms)
		requests <- func() { b.ok(free(b, p)) }
		<-answers
		require.NotEqual(t, p, b.alloc(64, other))
		require.NotEqual(t, p, b.alloc(64, s))
		b.ok(b.StreamSynchronize(s))
		require.Equal(t, p, b.alloc(64, other))
	})
}

// Goroutines pass pool memory between streams that only events order; no byte is
// wrong and what is reserved stays bounded.
func TestPoolStress(t *testing.T) {
	b := newBed(t, Config{Latency: -1})
	b.setPool(driver.MemPoolReleaseThreshold, 1<<30)
	const workers, most = 8, 8192
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(i)))
			s := [2]driver.Stream{b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)}
			e := b.event(0, driver.EventDisableTiming)
			for round := range 200 {
				v, n := byte(i*16+round%16), 1+random.Uint64N(most)
				release := func() {}
				if round%8 == 0 {
					release = b.gpu.Hold(Handle(s[round/8%2]))
				}
				p := b.alloc(n, s[0])
				host := b.pinned(n)
				b.ok(b.MemsetD8Async(p, v, n, s[0]))
				b.ok(b.EventRecord(e, s[0]))
				b.ok(b.StreamWaitEvent(s[1], e, 0))
				b.ok(b.MemcpyDtoHAsync(at(host), p, n, s[1]))
				b.ok(b.EventRecord(e, s[1]))
				b.ok(b.StreamWaitEvent(s[0], e, 0))
				b.ok(b.MemFreeAsync(p, s[0]))
				q := b.alloc(n, s[0])
				b.ok(b.MemsetD8Async(q, ^v, n, s[0]))
				b.ok(b.MemFreeAsync(q, s[0]))
				release()
				b.ok(b.EventSynchronize(e))
				require.Equal(t, of(v, int(n)), host)
				b.on(0, func() { b.ok(b.MemFreeHost(at(host))) })
			}
			for _, s := range s {
				b.ok(b.StreamSynchronize(s))
				b.ok(b.StreamDestroy(s))
			}
			b.ok(b.EventDestroy(e))
		})
	}
	wg.Wait()
	require.Zero(t, b.figure(driver.MemPoolUsedCurrent))
	require.Less(t, b.figure(driver.MemPoolReservedHigh), uint64(workers*4*2*most))
	require.Empty(t, b.gpu.Problems())
}
