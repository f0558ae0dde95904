package drivertest_test

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

var eventMutations = []mutation{
	// Events.
	{"EventCreate takes all flags", []string{"rule 14"}, func(api *driver.API, sound driver.API) {
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) { return sound.EventCreate(flags & 3) }
	}},
	{"a never-recorded event is not ready", []string{"rule 16"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.EventQuery = func(e driver.Event) driver.Result {
			if _, ok := stream(e); !ok {
				return notReady
			}
			return sound.EventQuery(e)
		}
	}},
	{"EventQuery is always done", []string{"rule 17 a recorded", "rule 17 record moves", "rule 19"}, func(api *driver.API, sound driver.API) {
		api.EventQuery = func(e driver.Event) driver.Result { return instead(sound.EventQuery(e), notReady, success) }
	}},
	{"EventDestroy refuses a pending event", []string{"rule 24 an event"}, func(api *driver.API, sound driver.API) {
		api.EventDestroy = func(e driver.Event) driver.Result {
			if sound.EventQuery(e) == notReady {
				return notReady
			}
			return sound.EventDestroy(e)
		}
	}},
	{"an event stands for its whole stream", []string{"rule 17 a recorded"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.EventQuery = func(e driver.Event) driver.Result {
			s, _ := stream(e)
			return sound.StreamQuery(s)
		}
		api.EventSynchronize = func(e driver.Event) driver.Result {
			s, _ := stream(e)
			return sound.StreamSynchronize(s)
		}
	}},
	{"an event is recorded once", []string{"rule 17 record moves"}, func(api *driver.API, sound driver.API) {
		var once sync.Map
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			if _, before := once.LoadOrStore(e, true); before {
				return success
			}
			return sound.EventRecord(e, s)
		}
	}},
	{"EventRecord ignores the device", []string{"rule 17 an event is"}, func(api *driver.API, sound driver.API) {
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			return instead(sound.EventRecord(e, s), driver.ErrorInvalidHandle, success)
		}
	}},
	{"no time elapses", []string{"rule 20"}, func(api *driver.API, sound driver.API) {
		api.EventElapsedTime = func(driver.Event, driver.Event) (float32, driver.Result) { return 0, success }
	}},
	{"time elapses in microseconds", []string{"rule 20 elapsed: the time"}, func(api *driver.API, sound driver.API) {
		api.EventElapsedTime = func(start, end driver.Event) (float32, driver.Result) {
			ms, r := sound.EventElapsedTime(start, end)
			return ms * 1000, r
		}
	}},

	// Capture.
	{"no stream captures", []string{"rule 13", "rule 23 an event recorded in a capture forks"}, func(api *driver.API, sound driver.API) {
		api.StreamIsCapturing = func(s driver.Stream) (driver.CaptureStatus, driver.Result) { return driver.CaptureNone, success }
	}},
	{"record flags are dropped", []string{"rule 22 an external record", "rule 22 external events"}, func(api *driver.API, sound driver.API) {
		api.EventRecordWithFlags = func(e driver.Event, s driver.Stream, _ uint32) driver.Result { return sound.EventRecord(e, s) }
	}},
	{"interprocess events are recorded in captures", []string{"rule 23 an interprocess event"}, func(api *driver.API, sound driver.API) {
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			return instead(sound.EventRecord(e, s), driver.ErrorStreamCaptureUnsupported, success)
		}
	}},
	{"a captured event is done", []string{"rule 23 an event recorded in a capture belongs"}, func(api *driver.API, sound driver.API) {
		api.EventQuery = func(e driver.Event) driver.Result {
			return instead(sound.EventQuery(e), driver.ErrorCapturedEvent, success)
		}
	}},
	{"the default stream is captured", []string{"driver: the default stream cannot"}, func(api *driver.API, sound driver.API) {
		api.StreamBeginCapture = func(s driver.Stream, mode driver.CaptureMode) driver.Result {
			return instead(sound.StreamBeginCapture(s, mode), driver.ErrorStreamCaptureUnsupported, success)
		}
	}},
	{"event times are questions about work", []string{"driver: event times"}, func(api *driver.API, sound driver.API) {
		api.EventElapsedTime = func(start, end driver.Event) (float32, driver.Result) {
			if r := sound.EventQuery(end); r != success {
				return 0, r
			}
			return sound.EventElapsedTime(start, end)
		}
	}},
	{"queries are relaxed", []string{"driver: a query from any", "driver: a query ends"}, func(api *driver.API, sound driver.API) {
		api.EventQuery = func(e driver.Event) driver.Result {
			previous, _ := sound.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			defer sound.ThreadExchangeStreamCaptureMode(previous)
			return sound.EventQuery(e)
		}
	}},
	{"no thread is relaxed", []string{"driver: a query from a relaxed"}, func(api *driver.API, sound driver.API) {
		api.ThreadExchangeStreamCaptureMode = func(driver.CaptureMode) (driver.CaptureMode, driver.Result) {
			return driver.CaptureModeGlobal, success
		}
	}},

	// Between processes.
	{"a handle needs a record", []string{"rule 21 an event's"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.IPCGetEventHandle = func(e driver.Event) (driver.IPCEventHandle, driver.Result) {
			if _, ok := stream(e); !ok {
				return driver.IPCEventHandle{}, driver.ErrorInvalidHandle
			}
			return sound.IPCGetEventHandle(e)
		}
	}},
	{"every event has a handle", []string{"rule 21 only"}, func(api *driver.API, sound driver.API) {
		api.IPCGetEventHandle = func(e driver.Event) (driver.IPCEventHandle, driver.Result) {
			h, r := sound.IPCGetEventHandle(e)
			return h, instead(r, driver.ErrorInvalidHandle, success)
		}
	}},
	{"one's own memory can be opened", []string{"rule 33"}, func(api *driver.API, sound driver.API) {
		api.IPCOpenMemHandle = func(h driver.IPCMemHandle, flags uint32) (driver.DevicePtr, driver.Result) {
			p, r := sound.IPCOpenMemHandle(h, flags)
			return p, instead(r, driver.ErrorInvalidContext, success)
		}
	}},
	{"any handle can be opened", []string{"driver: handles of nothing"}, func(api *driver.API, sound driver.API) {
		api.IPCOpenEventHandle = func(h driver.IPCEventHandle) (driver.Event, driver.Result) {
			e, r := sound.IPCOpenEventHandle(h)
			return e, instead(r, driver.ErrorMapFailed, success)
		}
	}},
	{"every handle of an event is another", []string{"driver: an event keeps"}, func(api *driver.API, sound driver.API) {
		var asked atomic.Uint32
		api.IPCGetEventHandle = func(e driver.Event) (driver.IPCEventHandle, driver.Result) {
			h, r := sound.IPCGetEventHandle(e)
			h[63] = byte(asked.Add(1))
			return h, r
		}
	}},
	{"handles of memory are of addresses", []string{"driver: a handle of memory"}, func(api *driver.API, sound driver.API) {
		api.IPCGetMemHandle = func(p driver.DevicePtr) (driver.IPCMemHandle, driver.Result) {
			h, r := sound.IPCGetMemHandle(p)
			binary.LittleEndian.PutUint64(h[56:], uint64(p))
			return h, r
		}
	}},
	{"only the beginning of memory has a handle", []string{"driver: a handle of memory"}, func(api *driver.API, sound driver.API) {
		api.IPCGetMemHandle = func(p driver.DevicePtr) (driver.IPCMemHandle, driver.Result) {
			if base, _, _ := sound.MemGetAddressRange(p); base != p {
				return driver.IPCMemHandle{}, driver.ErrorInvalidValue
			}
			return sound.IPCGetMemHandle(p)
		}
	}},

	// Memory.
	{"allocations begin where they are asked for", []string{"driver: an address tells"}, func(api *driver.API, sound driver.API) {
		api.MemGetAddressRange = func(p driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
			_, n, r := sound.MemGetAddressRange(p)
			return p, n, r
		}
	}},
	{"allocations are 2 MiB", []string{"driver: an address tells"}, func(api *driver.API, sound driver.API) {
		api.MemGetAddressRange = func(p driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
			base, _, r := sound.MemGetAddressRange(p)
			return base, 2 << 20, r
		}
	}},
	{"allocations hold one byte more", []string{"driver: an allocation ends"}, func(api *driver.API, sound driver.API) {
		api.MemGetAddressRange = func(p driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
			base, n, r := sound.MemGetAddressRange(p)
			if r != success {
				base, n, r = sound.MemGetAddressRange(p - 1)
			}
			return base, n, r
		}
	}},
	{"copies to the device are short", []string{"driver: copies between host", "driver: pinned"}, func(api *driver.API, sound driver.API) {
		api.MemcpyHtoDAsync = func(dst driver.DevicePtr, src unsafe.Pointer, bytes uint64, s driver.Stream) driver.Result {
			return sound.MemcpyHtoDAsync(dst, src, bytes-1, s)
		}
	}},
	{"copies are short", []string{"driver: copies by"}, func(api *driver.API, sound driver.API) {
		api.MemcpyAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
			return sound.MemcpyAsync(dst, src, bytes-1, s)
		}
	}},
	{"copies between devices are dropped", []string{"driver: copies between devices"}, func(api *driver.API, sound driver.API) {
		api.MemcpyPeerAsync = func(driver.DevicePtr, driver.Context, driver.DevicePtr, driver.Context, uint64, driver.Stream) driver.Result {
			return success
		}
	}},
	{"sets count bytes", []string{"driver: sets"}, func(api *driver.API, sound driver.API) {
		api.MemsetD16Async = func(p driver.DevicePtr, v uint16, n uint64, s driver.Stream) driver.Result {
			return sound.MemsetD16Async(p, v, n/2, s)
		}
	}},
	{"nothing can be allocated", []string{"driver: an allocation of"}, func(api *driver.API, sound driver.API) {
		api.MemAlloc = func(n uint64) (driver.DevicePtr, driver.Result) {
			p, r := sound.MemAlloc(n)
			return p, instead(r, driver.ErrorInvalidValue, success)
		}
	}},
	{"free memory stays", []string{"driver: an allocation lessens"}, func(api *driver.API, sound driver.API) {
		api.MemGetInfo = func() (uint64, uint64, driver.Result) { return 4 << 30, 4 << 30, success }
	}},
	{"words are not written", []string{"driver: a stream writes"}, func(api *driver.API, sound driver.API) {
		api.StreamWriteValue32 = func(driver.Stream, driver.DevicePtr, uint32, uint32) driver.Result { return success }
	}},
	{"words are compared in one way", []string{"driver: a stream waits"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitValue32 = func(s driver.Stream, p driver.DevicePtr, value, _ uint32) driver.Result {
			return sound.StreamWaitValue32(s, p, value, driver.StreamWaitValueGEQ)
		}
	}},
}
