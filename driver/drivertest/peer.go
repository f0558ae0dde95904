package drivertest

import "github.com/purecuda/cuda/driver"

// Two devices: access to each other's memory, and pool memory between them.
// Access to a default pool that a row gives stays, because the driver cannot say
// whether it was there before.

var peerRows = []row{
	{"driver: a device is no peer of itself", 0, peerSelf},
	{"driver: peer access can be enabled once", 2, peerEnable},
	{"driver: copies between two devices' pools", 2, peerPools},
	{"driver: a device always reaches its own pool", 0, peerOwnPool},
	{"rule 29 pool memory can be freed on another device's stream", 2, peerFree},
	{"driver: a pool serves another device's stream", 2, peerPool},
}

// canAccess skips the row unless the first device may access the second's memory
// and the reverse.
func (b *bench) canAccess() {
	b.t.Helper()
	for d := range b.dev {
		can, r := b.DeviceCanAccessPeer(b.dev[d], b.dev[1-d])
		b.ok("DeviceCanAccessPeer", r)
		if can == 0 {
			b.t.Skipf("the devices cannot access each other")
		}
	}
}

func peerSelf(b *bench) {
	can, r := b.DeviceCanAccessPeer(b.dev[0], b.dev[0])
	b.ok("DeviceCanAccessPeer", r)
	equal(b, "whether a device is its own peer", can, 0)
	b.want("CtxEnablePeerAccess to the own context", b.in(0, func() driver.Result {
		return b.CtxEnablePeerAccess(b.ctx[0], 0)
	}), driver.ErrorPeerAccessUnsupported)
}

func peerEnable(b *bench) {
	b.canAccess()
	enable := func() driver.Result { return b.CtxEnablePeerAccess(b.ctx[1], 0) }
	disable := func() driver.Result { return b.CtxDisablePeerAccess(b.ctx[1]) }
	first := b.in(0, enable)
	if first != driver.ErrorPeerAccessAlreadyEnabled { // by somebody else
		b.ok("CtxEnablePeerAccess", first)
		defer func() {
			b.ok("CtxDisablePeerAccess", b.in(0, disable))
			b.want("CtxDisablePeerAccess again", b.in(0, disable), driver.ErrorPeerAccessNotEnabled)
		}()
	}
	b.want("CtxEnablePeerAccess again", b.in(0, enable), driver.ErrorPeerAccessAlreadyEnabled)
	s := b.stream(0)
	for what, f := range map[string]func() driver.Result{"CtxEnablePeerAccess": enable, "CtxDisablePeerAccess": disable} {
		b.endsCapture(s, what, func() driver.Result { return b.in(0, f) })
	}
}

// access gives each device access to the other's default pool.
func (b *bench) access() {
	b.t.Helper()
	b.canAccess()
	for d := range b.dev {
		a := driver.MemAccess{LocationType: driver.MemLocationDevice, LocationID: int32(b.dev[1-d]), Flags: driver.MemAccessReadWrite}
		b.ok("MemPoolSetAccess", b.MemPoolSetAccess(b.pool(d), a, 1))
	}
}

func peerPools(b *bench) {
	const n = 4096
	s, far, src := b.stream(0), b.stream(1), b.counting(n)
	x, y, z := b.alloc(b.pool(0), n, s), b.alloc(b.pool(1), n, far), b.alloc(b.pool(0), n, s)
	defer func() {
		b.MemFreeAsync(x, s)
		b.MemFreeAsync(y, far)
		b.MemFreeAsync(z, s)
	}()
	b.ok("StreamSynchronize", b.StreamSynchronize(far))
	b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(x, hostPointer(src), n, s))
	b.ok("MemsetD8Async", b.MemsetD8Async(z, 0, n, s))
	b.ok("MemcpyPeerAsync there", b.MemcpyPeerAsync(y, b.ctx[1], x, b.ctx[0], n, s))
	b.ok("MemcpyPeerAsync back", b.MemcpyPeerAsync(z, b.ctx[0], y, b.ctx[1], n, s))
	b.bytes("copied there and back", b.read(s, z, n), src)
	b.access()
	b.ok("MemsetD8Async", b.MemsetD8Async(z, 0, n, s))
	b.ok("MemcpyAsync there", b.MemcpyAsync(y, x, n, s))
	b.ok("MemcpyAsync back", b.MemcpyAsync(z, y, n, s))
	b.bytes("copied there and back by unified address", b.read(s, z, n), src)
}

func peerOwnPool(b *bench) {
	a := driver.MemAccess{LocationType: driver.MemLocationDevice, LocationID: int32(b.dev[0]), Flags: driver.MemAccessNone}
	b.want("MemPoolSetAccess that takes a device's access to its own pool",
		b.MemPoolSetAccess(b.pool(0), a, 1), driver.ErrorInvalidDevice)
}

func peerFree(b *bench) {
	s, far := b.stream(0), b.stream(1)
	p := b.alloc(b.pool(0), 4096, s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.free(p, far)
	b.ok("StreamSynchronize", b.StreamSynchronize(far))
	b.want("MemFreeAsync again", b.MemFreeAsync(p, s), driver.ErrorInvalidValue)
}

func peerPool(b *bench) {
	s := b.stream(0)
	p := b.alloc(b.pool(1), 4096, s)
	b.free(p, s)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}
