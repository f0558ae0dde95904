package drivertest_test

import (
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
)

var contextRecordMutations = []mutation{
	{"CtxRecordEvent records the default stream", []string{"driver: a record of a context covers all", "driver: streams wait for a record of a context"}, func(api *driver.API, sound driver.API) {
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			return inContext(sound, c, func() driver.Result { return sound.EventRecord(e, 0) })
		}
	}},
	{"CtxRecordEvent passes over the default stream", []string{"driver: a record of a context covers all"}, func(api *driver.API, sound driver.API) {
		streams := created(api, sound)
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			return inContext(sound, c, func() driver.Result {
				all, _ := sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
				defer sound.StreamDestroy(all)
				for _, s := range streams() {
					sound.EventRecord(e, s)
					sound.StreamWaitEvent(all, e, 0)
				}
				return sound.EventRecord(e, all)
			})
		}
	}},
	{"CtxRecordEvent stands for later work too", []string{"driver: a record of a context covers no"}, func(api *driver.API, sound driver.API) {
		var contexts sync.Map
		again := func(e driver.Event) {
			if c, ok := contexts.Load(e); ok {
				sound.CtxRecordEvent(c.(driver.Context), e)
			}
		}
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			contexts.Store(e, c)
			return sound.CtxRecordEvent(c, e)
		}
		api.EventSynchronize = func(e driver.Event) driver.Result {
			again(e)
			return sound.EventSynchronize(e)
		}
	}},
	{"CtxRecordEvent holds all streams up", []string{"driver: a record of a context holds"}, func(api *driver.API, sound driver.API) {
		streams := created(api, sound)
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			r := sound.CtxRecordEvent(c, e)
			for _, s := range streams() {
				sound.StreamWaitEvent(s, e, 0)
			}
			return r
		}
	}},
	{"CtxRecordEvent takes a while", []string{"driver: a record of an idle"}, func(api *driver.API, sound driver.API) {
		var fresh sync.Map
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			fresh.Store(e, true)
			return sound.CtxRecordEvent(c, e)
		}
		api.EventQuery = func(e driver.Event) driver.Result {
			if _, is := fresh.LoadAndDelete(e); is {
				return notReady
			}
			return sound.EventQuery(e)
		}
	}},
	{"CtxRecordEvent records an event once", []string{"driver: a record of a context moves"}, func(api *driver.API, sound driver.API) {
		var once sync.Map
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			if _, before := once.LoadOrStore(e, true); before {
				return success
			}
			return sound.CtxRecordEvent(c, e)
		}
	}},
	{"CtxRecordEvent needs a context", []string{"driver: a record of a context needs"}, func(api *driver.API, sound driver.API) {
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			if current, _ := sound.CtxGetCurrent(); current == 0 {
				return driver.ErrorInvalidContext
			}
			return sound.CtxRecordEvent(c, e)
		}
	}},
	{"CtxRecordEvent records no context", []string{"driver: a record of a context needs"}, func(api *driver.API, sound driver.API) {
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			return instead(sound.CtxRecordEvent(c, e), driver.ErrorInvalidContext, success)
		}
	}},
	{"CtxRecordEvent passes over captured streams", []string{"driver: a record of a context ends", "driver: a record of a context from"}, func(api *driver.API, sound driver.API) {
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			return instead(sound.CtxRecordEvent(c, e), driver.ErrorStreamCaptureUnsupported, success)
		}
	}},
	{"CtxRecordEvent heeds the thread's capture mode", []string{"driver: a record of a context from"}, func(api *driver.API, sound driver.API) {
		api.CtxRecordEvent = func(c driver.Context, e driver.Event) driver.Result {
			mode, _ := sound.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			defer sound.ThreadExchangeStreamCaptureMode(mode)
			if mode == driver.CaptureModeRelaxed {
				return success
			}
			return sound.CtxRecordEvent(c, e)
		}
	}},
}

// inContext calls f with c current.
func inContext(sound driver.API, c driver.Context, f func() driver.Result) driver.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sound.CtxPushCurrent(c)
	defer sound.CtxPopCurrent()
	return f()
}

func init() { mutations = append(mutations, contextRecordMutations...) }
