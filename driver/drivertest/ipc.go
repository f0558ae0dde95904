package drivertest

import (
	"fmt"
	"math/rand/v2"

	"github.com/purecuda/cuda/driver"
)

// Sharing between processes, as far as one process can tell.

var ipcRows = []row{
	{"rule 21 an event's handle may be taken before it is recorded", 0, ipcEventHandle},
	{"rule 21 only an interprocess event has a handle", 0, ipcNotInterprocess},
	{"rule 33 one's own event and memory cannot be opened", 0, ipcOwn},
	{"driver: handles of nothing are refused", 0, ipcGarbage},
	{"driver: an event keeps its handle", 0, ipcKept},
	{"driver: a handle of memory is of the whole allocation", 0, ipcWhole},
}

// shared makes an interprocess event of the first device.
func (b *bench) shared() driver.Event {
	b.t.Helper()
	return b.eventWith(0, driver.EventDisableTiming|driver.EventInterprocess)
}

func (b *bench) ipcHandle(e driver.Event) (h driver.IPCEventHandle) {
	b.t.Helper()
	b.with(0, func() {
		var r driver.Result
		h, r = b.IPCGetEventHandle(e)
		b.need("IPCGetEventHandle", r)
	})
	return h
}

func ipcEventHandle(b *bench) {
	s, e := b.stream(0), b.shared()
	if b.ipcHandle(e) == (driver.IPCEventHandle{}) {
		b.t.Fatal("IPCGetEventHandle: 64 zeros")
	}
	h := b.hold(s)
	b.ok("EventRecord", b.EventRecord(e, s))
	b.want("EventQuery", b.EventQuery(e), driver.ErrorNotReady)
	h.release()
	b.ok("EventSynchronize", b.EventSynchronize(e))
	if b.ipcHandle(e) == b.ipcHandle(b.shared()) {
		b.t.Fatal("IPCGetEventHandle: two events have the same handle")
	}
}

func ipcNotInterprocess(b *bench) {
	b.ipcHandle(b.shared()) // skips where no event can be shared
	for _, flags := range []uint32{driver.EventDefault, driver.EventDisableTiming} {
		e := b.eventWith(0, flags)
		b.with(0, func() {
			_, r := b.IPCGetEventHandle(e)
			b.want("IPCGetEventHandle", r, driver.ErrorInvalidHandle)
		})
	}
}

func ipcOwn(b *bench) {
	h := b.ipcHandle(b.shared())
	b.with(0, func() {
		_, r := b.IPCOpenEventHandle(h)
		b.want("IPCOpenEventHandle", r, driver.ErrorInvalidContext)
		m, r := b.IPCGetMemHandle(b.devices[0])
		b.ok("IPCGetMemHandle", r)
		_, r = b.IPCOpenMemHandle(m, driver.IPCMemLazyEnablePeerAccess)
		b.want("IPCOpenMemHandle", r, driver.ErrorInvalidContext)
	})
}

func ipcGarbage(b *bench) {
	b.ipcHandle(b.shared()) // skips where no event can be shared
	random := rand.New(rand.NewPCG(1, 2))
	b.with(0, func() {
		for range 10 {
			var h [64]byte
			for i := range h {
				h[i] = byte(random.Uint32())
			}
			_, r := b.IPCOpenEventHandle(h)
			b.want("IPCOpenEventHandle", r, driver.ErrorMapFailed)
			_, r = b.IPCOpenMemHandle(h, driver.IPCMemLazyEnablePeerAccess)
			b.want("IPCOpenMemHandle", r, driver.ErrorInvalidValue)
		}
	})
}

func ipcKept(b *bench) {
	s, e := b.stream(0), b.shared()
	h := b.ipcHandle(e)
	b.ok("EventRecord", b.EventRecord(e, s))
	equal(b, "the handle of an event, asked for again", b.ipcHandle(e), h)
}

func ipcWhole(b *bench) {
	b.with(0, func() {
		whole, r := b.IPCGetMemHandle(b.devices[0])
		b.need("IPCGetMemHandle", r)
		for _, offset := range []driver.DevicePtr{0, 1, arenaSize - 1} {
			h, r := b.IPCGetMemHandle(b.devices[0] + offset)
			b.ok("IPCGetMemHandle", r)
			equal(b, fmt.Sprintf("the handle of byte %d of an allocation", offset), h, whole)
		}
	})
}
