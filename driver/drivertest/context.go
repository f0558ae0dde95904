package drivertest

import "github.com/purecuda/cuda/driver"

// What needs a current context on the calling thread and what does not: the
// library calls the latter from any goroutine as it is, and binds a context to
// a locked thread for the former only.

var contextRows = []row{
	{"driver: devices describe themselves", 0, devicesDescribe},
	{"driver: a device has one primary context", 0, primaryContext},
	{"driver: push and pop leave the thread's context as it was", 0, pushAndPop},
	{"driver: created streams and events work without a context", 0, withoutContext},
	{"driver: the default streams need a context", 0, defaultNeedsContext},
	{"driver: creating and device-wide calls need a context", 0, creatingNeedsContext},
	{"driver: a stream works while another device's context is current", 2, otherContext},
	{"rule 27 synchronizing a device waits for all its streams", 0, contextSynchronize},
	{"rule 27 synchronizing a device waits for no other device", 2, contextSynchronizeOther},
}

func devicesDescribe(b *bench) {
	seen := map[driver.UUID]bool{}
	for d, dev := range b.dev {
		name, r := b.DeviceGetName(dev)
		b.ok("DeviceGetName", r)
		busID, r := b.DeviceGetPCIBusID(dev)
		b.ok("DeviceGetPCIBusID", r)
		id, r := b.DeviceGetUUID(dev)
		b.ok("DeviceGetUUID", r)
		bytes, r := b.DeviceTotalMem(dev)
		b.ok("DeviceTotalMem", r)
		if name == "" || busID == "" || bytes == 0 {
			b.t.Errorf("device %d: name %q, PCI bus id %q, %d bytes of memory", d, name, busID, bytes)
		}
		if seen[id] {
			b.t.Errorf("device %d: another device has the UUID %v too", d, id)
		}
		seen[id] = true
	}
	count, r := b.DeviceGetCount()
	b.ok("DeviceGetCount", r)
	_, r = b.DeviceGet(count)
	b.want("DeviceGet of one more than there are", r, driver.ErrorInvalidDevice)
}

func primaryContext(b *bench) {
	c, r := b.DevicePrimaryCtxRetain(b.dev[0])
	b.ok("DevicePrimaryCtxRetain", r)
	equal(b, "the primary context, asked for again", c, b.ctx[0])
	b.ok("DevicePrimaryCtxRelease", b.DevicePrimaryCtxRelease(b.dev[0]))
	_, active, r := b.DevicePrimaryCtxGetState(b.dev[0])
	b.ok("DevicePrimaryCtxGetState", r)
	equal(b, "active, after one of two references was given back", active, 1)
}

func pushAndPop(b *bench) {
	current := func(what string, want driver.Context) {
		b.t.Helper()
		c, r := b.CtxGetCurrent()
		b.ok("CtxGetCurrent", r)
		equal(b, "the current context "+what, c, want)
	}
	b.bare(func() {
		for d := range b.ctx {
			b.with(d, func() {
				current("after a push", b.ctx[d])
				dev, r := b.CtxGetDevice()
				b.ok("CtxGetDevice", r)
				equal(b, "the current device", dev, b.dev[d])
				last := len(b.ctx) - 1
				b.with(last, func() { current("after another push", b.ctx[last]) })
				current("after the other's pop", b.ctx[d])
			})
			current("after the pop", 0)
		}
	})
}

func withoutContext(b *bench) {
	s, e, f := b.stream(0), b.eventWith(0, driver.EventDefault), b.eventWith(0, driver.EventDefault)
	host, mem := b.pinned(64), b.mem(0, 64)
	b.bare(func() {
		b.ok("EventRecord", b.EventRecord(e, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, e, 0))
		b.ok("MemsetD8Async", b.MemsetD8Async(mem, 7, 64, s))
		b.ok("MemsetD16Async", b.MemsetD16Async(mem, 7, 32, s))
		b.ok("MemsetD32Async", b.MemsetD32Async(mem, 7, 16, s))
		b.ok("MemcpyAsync", b.MemcpyAsync(driver.HostPtr(hostPointer(host)), mem, 64, s))
		b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(mem, hostPointer(host), 64, s))
		b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), mem, 64, s))
		b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(mem+32, mem, 32, s))
		b.ok("EventRecord", b.EventRecord(f, s))
		b.ok("EventSynchronize", b.EventSynchronize(f))
		b.ok("EventQuery", b.EventQuery(f))
		_, r := b.EventElapsedTime(e, f)
		b.ok("EventElapsedTime", r)
		b.ok("StreamSynchronize", b.StreamSynchronize(s))
		b.ok("StreamQuery", b.StreamQuery(s))
		_, r = b.StreamGetPriority(s)
		b.ok("StreamGetPriority", r)
		_, r = b.StreamGetFlags(s)
		b.ok("StreamGetFlags", r)
		_, r = b.StreamGetCtx(s)
		b.ok("StreamGetCtx", r)
		_, r = b.StreamIsCapturing(s)
		b.ok("StreamIsCapturing", r)
		b.ok("EventDestroy", b.destroyEvent(e))
		b.ok("StreamDestroy", b.destroyStream(s))
	})
}

func defaultNeedsContext(b *bench) {
	e := b.event(0)
	b.bare(func() {
		for _, s := range []driver.Stream{0, driver.StreamLegacy, driver.StreamPerThread} {
			b.want("EventRecord", b.EventRecord(e, s), driver.ErrorInvalidContext)
			b.want("StreamWaitEvent", b.StreamWaitEvent(s, e, 0), driver.ErrorInvalidContext)
			b.want("StreamQuery", b.StreamQuery(s), driver.ErrorInvalidContext)
			b.want("StreamSynchronize", b.StreamSynchronize(s), driver.ErrorInvalidContext)
		}
	})
	// The library refuses per-thread streams: what they do is nobody's business here.
	b.with(0, func() {
		for _, s := range []driver.Stream{0, driver.StreamLegacy} {
			b.ok("EventRecord", b.EventRecord(e, s))
			b.ok("StreamWaitEvent", b.StreamWaitEvent(s, e, 0))
			b.ok("StreamSynchronize", b.StreamSynchronize(s))
			b.ok("StreamQuery", b.StreamQuery(s))
		}
	})
}

func creatingNeedsContext(b *bench) {
	e := b.eventWith(0, driver.EventDisableTiming|driver.EventInterprocess)
	b.bare(func() {
		_, r := b.EventCreate(driver.EventDefault)
		b.want("EventCreate", r, driver.ErrorInvalidContext)
		_, r = b.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
		b.want("StreamCreateWithPriority", r, driver.ErrorInvalidContext)
		_, _, r = b.CtxGetStreamPriorityRange()
		b.want("CtxGetStreamPriorityRange", r, driver.ErrorInvalidContext)
		_, r = b.CtxGetDevice()
		b.want("CtxGetDevice", r, driver.ErrorInvalidContext)
		b.want("CtxSynchronize", b.CtxSynchronize(), driver.ErrorInvalidContext)
		_, _, r = b.MemGetInfo()
		b.want("MemGetInfo", r, driver.ErrorInvalidContext)
		_, r = b.MemAlloc(64)
		b.want("MemAlloc", r, driver.ErrorInvalidContext)
		_, r = b.MemHostAlloc(64, driver.MemHostAllocPortable)
		b.want("MemHostAlloc", r, driver.ErrorInvalidContext)
		_, r = b.IPCGetEventHandle(e)
		b.want("IPCGetEventHandle", r, driver.ErrorInvalidContext)
	})
}

func otherContext(b *bench) {
	s, e, w := b.stream(1), b.event(1), b.word()
	b.with(0, func() {
		b.mark(s, w)
		b.ok("EventRecord", b.EventRecord(e, s))
		b.ok("StreamWaitEvent", b.StreamWaitEvent(s, e, 0))
		b.ok("EventSynchronize", b.EventSynchronize(e))
		b.ok("StreamSynchronize", b.StreamSynchronize(s))
	})
	equal(b, "what the stream wrote", w.load(), 1)
}

func contextSynchronize(b *bench) {
	first, second, idle := b.stream(0), b.stream(0), b.stream(0)
	h1, h2 := b.hold(first), b.hold(second)
	sync := b.start(func() driver.Result { return b.in(0, b.CtxSynchronize) })
	b.blocked("CtxSynchronize with two busy streams", sync)
	h1.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(first))
	b.blocked("CtxSynchronize with one busy stream", sync)
	h2.release()
	b.returns("CtxSynchronize", sync)
	b.ok("StreamQuery", b.StreamQuery(second))
	b.ok("StreamQuery", b.StreamQuery(idle))
}

func contextSynchronizeOther(b *bench) {
	s := b.stream(1)
	h := b.hold(s)
	b.ok("CtxSynchronize", b.in(0, b.CtxSynchronize))
	b.want("StreamQuery of the other device's stream", b.StreamQuery(s), driver.ErrorNotReady)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
}
