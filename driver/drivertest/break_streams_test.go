package drivertest_test

import (
	"runtime"
	"strings"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// A mutation is a driver that is wrong in one way.
type mutation struct {
	what   string
	rows   []string // what the names of the rows begin with that it must fail
	mutate func(api *driver.API, sound driver.API)
}

func (m mutation) breaks(row string) bool {
	for _, prefix := range m.rows {
		if strings.HasPrefix(row, prefix) {
			return true
		}
	}
	return false
}

const (
	success  = driver.Success
	notReady = driver.ErrorNotReady
)

// instead answers got with another result.
func instead(r, got, answer driver.Result) driver.Result {
	if r == got {
		return answer
	}
	return r
}

// recorded remembers on which stream each event was last recorded.
func recorded(api *driver.API, sound driver.API) func(driver.Event) (driver.Stream, bool) {
	var streams sync.Map
	api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
		streams.Store(e, s)
		return sound.EventRecord(e, s)
	}
	return func(e driver.Event) (driver.Stream, bool) {
		s, ok := streams.Load(e)
		if !ok {
			return 0, false
		}
		return s.(driver.Stream), true
	}
}

// created remembers the streams that exist.
func created(api *driver.API, sound driver.API) (all func() []driver.Stream) {
	var streams sync.Map
	api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) {
		s, r := sound.StreamCreateWithPriority(flags, priority)
		streams.Store(s, true)
		return s, r
	}
	api.StreamDestroy = func(s driver.Stream) driver.Result {
		streams.Delete(s)
		return sound.StreamDestroy(s)
	}
	return func() (list []driver.Stream) {
		for s := range streams.Range {
			list = append(list, s.(driver.Stream))
		}
		return list
	}
}

var mutations = []mutation{
	// The driver, devices and contexts.
	{"a device more than there are", []string{"driver: devices describe"}, func(api *driver.API, sound driver.API) {
		api.DeviceGet = func(i int32) (driver.Device, driver.Result) { return driver.Device(i), success }
	}},
	{"primary context never active", []string{"driver: a device has one"}, func(api *driver.API, sound driver.API) {
		api.DevicePrimaryCtxGetState = func(driver.Device) (uint32, int32, driver.Result) { return 0, 0, success }
	}},
	{"push twice", []string{"driver: push and pop"}, func(api *driver.API, sound driver.API) {
		api.CtxPushCurrent = func(c driver.Context) driver.Result {
			sound.CtxPushCurrent(c)
			return sound.CtxPushCurrent(c)
		}
	}},
	{"record needs a context", []string{"driver: created streams"}, func(api *driver.API, sound driver.API) {
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			if c, _ := sound.CtxGetCurrent(); c == 0 {
				return driver.ErrorInvalidContext
			}
			return sound.EventRecord(e, s)
		}
	}},
	{"default stream needs no context", []string{"driver: the default streams"}, func(api *driver.API, sound driver.API) {
		api.StreamQuery = func(s driver.Stream) driver.Result {
			return instead(sound.StreamQuery(s), driver.ErrorInvalidContext, success)
		}
	}},
	{"EventCreate needs no context", []string{"driver: creating"}, func(api *driver.API, sound driver.API) {
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
			e, r := sound.EventCreate(flags)
			return e, instead(r, driver.ErrorInvalidContext, success)
		}
	}},
	{"StreamSynchronize needs its own context", []string{"driver: a stream works while"}, func(api *driver.API, sound driver.API) {
		api.StreamSynchronize = func(s driver.Stream) driver.Result {
			current, _ := sound.CtxGetCurrent()
			if c, _ := sound.StreamGetCtx(s); current != 0 && c != current {
				return driver.ErrorInvalidContext
			}
			return sound.StreamSynchronize(s)
		}
	}},
	{"CtxSynchronize does not wait", []string{"rule 27 synchronizing a device waits for all"}, func(api *driver.API, sound driver.API) {
		api.CtxSynchronize = func() driver.Result { return success }
	}},
	{"CtxSynchronize waits for all devices", []string{"rule 27 synchronizing a device waits for no"}, func(api *driver.API, sound driver.API) {
		api.CtxSynchronize = func() driver.Result {
			for d := range driver.Device(2) {
				c, _ := sound.DevicePrimaryCtxRetain(d)
				sound.CtxPushCurrent(c)
				sound.CtxSynchronize()
				sound.CtxPopCurrent()
				sound.DevicePrimaryCtxRelease(d)
			}
			return success
		}
	}},

	// Streams.
	{"created stream has handle 0", []string{"rule 02 a created"}, func(api *driver.API, sound driver.API) {
		api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) { return 0, success }
	}},
	{"handle 1 is another stream", []string{"rule 02 handles"}, func(api *driver.API, sound driver.API) {
		api.StreamQuery = func(s driver.Stream) driver.Result {
			if s == driver.StreamLegacy {
				return success
			}
			return sound.StreamQuery(s)
		}
	}},
	{"streams are all blocking", []string{"rule 03 a stream", "rule 03 a non-blocking"}, func(api *driver.API, sound driver.API) {
		api.StreamCreateWithPriority = func(_ uint32, priority int32) (driver.Stream, driver.Result) {
			return sound.StreamCreateWithPriority(driver.StreamDefault, priority)
		}
	}},
	{"streams are all non-blocking", []string{"rule 03 a stream", "rule 03 a blocking"}, func(api *driver.API, sound driver.API) {
		api.StreamCreateWithPriority = func(_ uint32, priority int32) (driver.Stream, driver.Result) {
			return sound.StreamCreateWithPriority(driver.StreamNonBlocking, priority)
		}
	}},
	{"a record leaves nothing in the default stream", []string{"rule 03 an event"}, func(api *driver.API, sound driver.API) {
		streams := created(api, sound)
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			if s != 0 {
				return sound.EventRecord(e, s)
			}
			all, r := sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			if r != success {
				return r
			}
			defer sound.StreamDestroy(all)
			for _, s := range streams() {
				sound.EventRecord(e, s)
				sound.StreamWaitEvent(all, e, 0)
			}
			return sound.EventRecord(e, all)
		}
	}},
	{"priority is as asked for", []string{"rule 04"}, func(api *driver.API, sound driver.API) {
		var asked sync.Map
		api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) {
			s, r := sound.StreamCreateWithPriority(flags, priority)
			asked.Store(s, priority)
			return s, r
		}
		api.StreamGetPriority = func(s driver.Stream) (int32, driver.Result) {
			priority, _ := asked.Load(s)
			return priority.(int32), success
		}
	}},
	{"StreamQuery is always done", []string{"rule 05"}, func(api *driver.API, sound driver.API) {
		api.StreamQuery = func(driver.Stream) driver.Result { return success }
	}},
	{"StreamSynchronize under a lock", []string{"rule 06"}, func(api *driver.API, sound driver.API) {
		var mu sync.Mutex
		api.StreamSynchronize = func(s driver.Stream) driver.Result {
			mu.Lock()
			defer mu.Unlock()
			return sound.StreamSynchronize(s)
		}
	}},
	{"streams have no context", []string{"rule 11 a stream knows"}, func(api *driver.API, sound driver.API) {
		api.StreamGetCtx = func(driver.Stream) (driver.Context, driver.Result) { return 0, success }
	}},
	{"stream ids begin again", []string{"rule 11 a stream's id"}, func(api *driver.API, sound driver.API) {
		api.StreamGetID = func(s driver.Stream) (uint64, driver.Result) {
			id, r := sound.StreamGetID(s)
			return id % 8, r
		}
	}},
	{"streams come from a pool", []string{"rule 12"}, func(api *driver.API, sound driver.API) {
		var mu sync.Mutex
		var pool []driver.Stream
		next := 0
		api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) {
			mu.Lock()
			defer mu.Unlock()
			if next++; len(pool) == 32 {
				return pool[next%32], success
			}
			s, r := sound.StreamCreateWithPriority(flags, priority)
			pool = append(pool, s)
			return s, r
		}
	}},
	{"StreamDestroy refuses a busy stream", []string{"rule 24 a stream"}, func(api *driver.API, sound driver.API) {
		api.StreamDestroy = func(s driver.Stream) driver.Result {
			if sound.StreamQuery(s) == notReady {
				return notReady
			}
			return sound.StreamDestroy(s)
		}
	}},

	// Order.
	{"copies run on another stream", []string{"rule 01"}, func(api *driver.API, sound driver.API) {
		api.MemcpyDtoDAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c, _ := sound.StreamGetCtx(s)
			sound.CtxPushCurrent(c)
			defer sound.CtxPopCurrent()
			other, _ := sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			defer sound.StreamDestroy(other)
			return sound.MemcpyDtoDAsync(dst, src, bytes, other)
		}
	}},
	{"StreamWaitEvent does nothing", []string{"rule 01 two", "rule 07 only", "rule 07 waiting", "rule 09", "driver: streams wait for a record of a context"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitEvent = func(driver.Stream, driver.Event, uint32) driver.Result { return success }
	}},
	{"StreamWaitEvent waits for the whole stream", []string{"rule 07 waiting"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			if from, ok := stream(e); ok {
				sound.EventRecord(e, from)
			}
			return sound.StreamWaitEvent(s, e, flags)
		}
	}},
	{"StreamWaitEvent refuses the event's stream", []string{"rule 07 a stream"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			if from, ok := stream(e); ok && from == s {
				return driver.ErrorInvalidValue
			}
			return sound.StreamWaitEvent(s, e, flags)
		}
	}},
	{"StreamWaitEvent refuses another device's event", []string{"rule 09"}, func(api *driver.API, sound driver.API) {
		stream := recorded(api, sound)
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			from, _ := stream(e)
			c, _ := sound.StreamGetCtx(from)
			if own, _ := sound.StreamGetCtx(s); own != c {
				return driver.ErrorInvalidHandle
			}
			return sound.StreamWaitEvent(s, e, flags)
		}
	}},
	{"StreamWaitEvent blocks", []string{"rule 18"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitEvent = func(_ driver.Stream, e driver.Event, _ uint32) driver.Result {
			return sound.EventSynchronize(e)
		}
	}},
}

func init() { mutations = append(mutations, eventMutations...) }
