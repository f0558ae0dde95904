package cudatest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// access is what gives or takes a device's access to a pool.
func access(device int32, flags driver.MemAccessFlags) driver.MemAccess {
	return driver.MemAccess{LocationType: driver.MemLocationDevice, LocationID: device, Flags: flags}
}

func TestReaches(t *testing.T) {
	b := newBed(t, Config{Devices: 3})
	s := b.stream(1, driver.StreamNonBlocking)
	plain, host := b.mem(1, 64), driver.HostPtr(at(b.pinned(64)))
	pooled, r := b.MemAllocFromPoolAsync(64, b.pool(1), s)
	b.ok(r)
	reaches := func(device int, addr driver.DevicePtr) bool {
		p := b.gpu.main
		p.gpu.mu.Lock()
		defer p.gpu.mu.Unlock()
		return p.reaches(p.contexts[device], p.contains(uint64(addr)))
	}
	all := func() (is [3]bool) {
		for i, addr := range []driver.DevicePtr{plain, pooled, host} {
			is[i] = reaches(0, addr)
			require.True(t, reaches(1, addr), "its own")
			require.Equal(t, addr == host, reaches(2, addr), "nothing was given to it")
		}
		return is
	}
	require.Equal(t, [3]bool{false, false, true}, all())
	b.on(0, func() { b.ok(b.CtxEnablePeerAccess(b.ctx[1], 0)) })
	require.Equal(t, [3]bool{true, false, true}, all())
	b.ok(b.MemPoolSetAccess(b.pool(1), access(0, driver.MemAccessReadWrite), 1))
	require.Equal(t, [3]bool{true, true, true}, all())
	b.on(0, func() { b.ok(b.CtxDisablePeerAccess(b.ctx[1])) })
	require.Equal(t, [3]bool{false, true, true}, all())
	b.ok(b.MemPoolSetAccess(b.pool(1), access(0, driver.MemAccessNone), 1))
	require.Equal(t, [3]bool{false, false, true}, all())
}

func TestPeerMisuse(t *testing.T) {
	b, without := newBed(t, Config{Devices: 2}), newBed(t, Config{Devices: 2, NoPeerAccess: true})
	for _, c := range []struct {
		name string
		got  driver.Result
		want driver.Result
	}{
		{"unknown device", second(b.DeviceCanAccessPeer(0, 2)), driver.ErrorInvalidDevice},
		{"unknown context", peer(b, b.CtxEnablePeerAccess, 1, 0), driver.ErrorInvalidContext},
		{"unknown flag", peer(b, b.CtxEnablePeerAccess, b.ctx[1], 1), driver.ErrorInvalidValue},
		{"no access between them", peer(without, without.CtxEnablePeerAccess, without.ctx[1], 0), driver.ErrorPeerAccessUnsupported},
		{"no access to the pool", without.MemPoolSetAccess(without.pool(0), access(1, driver.MemAccessReadWrite), 1), driver.ErrorInvalidDevice},
		{"two descriptions", b.MemPoolSetAccess(b.pool(0), access(1, driver.MemAccessReadWrite), 2), driver.ErrorInvalidValue},
		{"unknown access", b.MemPoolSetAccess(b.pool(0), access(1, 2), 1), driver.ErrorInvalidValue},
		{"pool access of no device", b.MemPoolSetAccess(b.pool(0), access(2, 3), 1), driver.ErrorInvalidDevice},
	} {
		require.Equal(t, c.want, c.got, c.name)
	}
	for _, each := range []*bed{b, without} {
		can, r := each.DeviceCanAccessPeer(0, 1)
		each.ok(r)
		require.Equal(t, each == b, can == 1)
	}
}

func second(_ int32, r driver.Result) driver.Result { return r }

func peer(b *bed, enable func(driver.Context, uint32) driver.Result, c driver.Context, flags uint32) (r driver.Result) {
	b.on(0, func() { r = enable(c, flags) })
	return r
}

// Copies of pool memory need access from the context that calls, or the stream's
// where there is none; those that name the contexts do not.
func TestPoolCopiesNeedAccess(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	s, other := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
	near, plain, host := b.alloc(64, s), b.mem(1, 64), b.pinned(64)
	far, r := b.MemAllocFromPoolAsync(64, b.pool(1), s)
	b.ok(r)
	copies := func(want driver.Result, s driver.Stream) {
		t.Helper()
		require.Equal(t, want, b.MemcpyAsync(far, near, 64, s))
		require.Equal(t, want, b.MemcpyDtoDAsync(near, far, 64, s))
		require.Equal(t, want, b.MemcpyHtoDAsync(far, at(host), 64, s))
		require.Equal(t, want, b.MemcpyDtoHAsync(at(host), far, 64, s))
		require.Equal(t, want, b.Memcpy2DAsync(rectangle(far, near, 8, 8, 8), s))
		b.ok(b.MemcpyPeerAsync(far, b.ctx[1], near, b.ctx[0], 64, s))
		b.ok(b.MemcpyAsync(plain, driver.HostPtr(at(host)), 64, s)) // plain memory needs none
	}
	copies(driver.ErrorInvalidValue, s)
	b.on(0, func() {
		copies(driver.ErrorInvalidValue, other)
		b.ok(b.MemcpyAsync(plain, near, 64, other))
		b.ok(b.CtxEnablePeerAccess(b.ctx[1], 0))
		copies(driver.ErrorInvalidValue, s)
	})
	problems := b.gpu.Problems()
	require.Contains(t, problems[len(problems)-1], "the context of device 0 has no access to the pool of device 1")
	b.on(1, func() { require.Equal(t, driver.ErrorInvalidValue, b.MemcpyAsync(far, near, 64, other)) })
	b.ok(b.MemPoolSetAccess(b.pool(1), access(0, driver.MemAccessReadWrite), 1))
	copies(driver.Success, s)
	b.on(0, func() { copies(driver.Success, other) })
}

func TestSetsNeedAccess(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	s, plain, host := b.stream(0, driver.StreamNonBlocking), b.mem(1, 64), driver.HostPtr(at(b.pinned(64)))
	b.ok(b.MemsetD8Async(host, 1, 64, s))
	require.Equal(t, driver.ErrorInvalidValue, b.MemsetD8Async(plain, 1, 64, s))
	problems := b.gpu.Problems()
	require.Contains(t, problems[len(problems)-1], "device 0 has no access to")
	b.on(0, func() { b.ok(b.CtxEnablePeerAccess(b.ctx[1], 0)) })
	b.ok(b.MemsetD8Async(plain, 1, 64, s))
}

// Another process's memory can be opened on another device if that can reach it.
func TestOpeningMemoryNeedsAPeer(t *testing.T) {
	for _, c := range []struct {
		conf Config
		want driver.Result
	}{
		{Config{Devices: 2}, driver.Success},
		{Config{Devices: 2, NoPeerAccess: true}, driver.ErrorPeerAccessUnsupported},
	} {
		a := newBed(t, c.conf)
		b, p := newBedOn(t, a.gpu, a.gpu.NewProcess().API()), a.mem(0, 64)
		a.on(0, func() {
			h, r := a.IPCGetMemHandle(p)
			a.ok(r)
			for device, want := range []driver.Result{driver.Success, c.want} {
				b.on(device, func() {
					_, r := b.IPCOpenMemHandle(h, driver.IPCMemLazyEnablePeerAccess)
					require.Equal(t, want, r)
				})
			}
		})
	}
}
