package drivertest_test

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func init() { mutations = append(mutations, graphMutations...) }

// launched remembers on which stream each executable graph was launched last.
func launched(api *driver.API, sound driver.API) func(driver.GraphExec) driver.Stream {
	var streams sync.Map
	api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
		streams.Store(x, s)
		return sound.GraphLaunch(x, s)
	}
	return func(x driver.GraphExec) driver.Stream {
		s, _ := streams.Load(x)
		return s.(driver.Stream)
	}
}

var graphMutations = []mutation{
	{"every stream has its own capture", []string{"driver: the streams of a capture"}, func(api *driver.API, sound driver.API) {
		api.StreamGetCaptureInfo = func(s driver.Stream) (driver.CaptureStatus, uint64, driver.Result) {
			status, id, r := sound.StreamGetCaptureInfo(s)
			if status == driver.CaptureActive {
				id += uint64(s)
			}
			return status, id, r
		}
	}},
	{"capture ids begin again", []string{"driver: the streams of a capture"}, func(api *driver.API, sound driver.API) {
		api.StreamGetCaptureInfo = func(s driver.Stream) (driver.CaptureStatus, uint64, driver.Result) {
			status, id, r := sound.StreamGetCaptureInfo(s)
			return status, min(id, 1), r
		}
	}},
	{"an ended capture's events are done", []string{"rule 23 an event of an ended"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			return instead(sound.StreamWaitEvent(s, e, flags), driver.ErrorInvalidValue, success)
		}
	}},
	{"external waits are dropped", []string{"rule 22 an external wait"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			if flags != 0 {
				return success
			}
			return sound.StreamWaitEvent(s, e, flags)
		}
	}},
	{"a stream that joins a capture is not ordered", []string{"rule 23 a graph keeps"}, func(api *driver.API, sound driver.API) {
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			if status, _ := sound.StreamIsCapturing(s); status == driver.CaptureActive {
				return success
			}
			return sound.StreamWaitEvent(s, e, flags)
		}
	}},
	{"launching does nothing", []string{"rule 22 external events", "rule 22 an external wait", "rule 23 a graph keeps", "driver: a launch has its place", "driver: launches of one",
		"driver: an executable graph may", "driver: an executable graph takes", "driver: an uploaded", "driver: a graph needs no", "driver: a graph launches",
		"driver: a capture takes", "driver: a global capture allows"}, func(api *driver.API, sound driver.API) {
		api.GraphLaunch = func(driver.GraphExec, driver.Stream) driver.Result { return success }
	}},
	{"a graph is launched once", []string{"rule 22 external events", "rule 22 an external wait", "rule 23 a graph keeps"}, func(api *driver.API, sound driver.API) {
		var once sync.Map
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			if _, before := once.LoadOrStore(x, true); before {
				return success
			}
			return sound.GraphLaunch(x, s)
		}
	}},
	{"launches run on another stream", []string{"driver: a launch has its place", "rule 22 an external wait"}, func(api *driver.API, sound driver.API) {
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c, _ := sound.StreamGetCtx(s)
			sound.CtxPushCurrent(c)
			defer sound.CtxPopCurrent()
			other, _ := sound.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			defer sound.StreamDestroy(other)
			return sound.GraphLaunch(x, other)
		}
	}},
	{"launches overlap", []string{"driver: launches of one"}, func(api *driver.API, sound driver.API) {
		var twins sync.Map
		api.GraphInstantiateWithFlags = func(g driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
			x, r := sound.GraphInstantiateWithFlags(g, flags)
			twin, _ := sound.GraphInstantiateWithFlags(g, flags)
			twins.Store(x, twin)
			return x, r
		}
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			if twin, ok := twins.LoadAndDelete(x); ok {
				return sound.GraphLaunch(twin.(driver.GraphExec), s)
			}
			return sound.GraphLaunch(x, s)
		}
	}},
	{"GraphExecDestroy refuses a busy graph", []string{"driver: an executable graph may"}, func(api *driver.API, sound driver.API) {
		stream := launched(api, sound)
		api.GraphExecDestroy = func(x driver.GraphExec) driver.Result {
			if sound.StreamQuery(stream(x)) == notReady {
				return notReady
			}
			return sound.GraphExecDestroy(x)
		}
	}},
	{"an update does nothing", []string{"driver: an executable graph takes", "driver: a global capture allows", "driver: a graph needs no"}, func(api *driver.API, sound driver.API) {
		api.GraphExecUpdate = func(driver.GraphExec, driver.Graph) (driver.GraphNode, driver.GraphExecUpdateResult, driver.Result) {
			return 0, driver.GraphExecUpdateSuccess, success
		}
	}},
	{"an update acts on launches in flight", []string{"driver: an executable graph takes other"}, func(api *driver.API, sound driver.API) {
		stream := launched(api, sound)
		api.GraphExecUpdate = func(x driver.GraphExec, g driver.Graph) (driver.GraphNode, driver.GraphExecUpdateResult, driver.Result) {
			n, result, r := sound.GraphExecUpdate(x, g)
			sound.GraphLaunch(x, stream(x))
			return n, result, r
		}
	}},
	{"an upload is a launch", []string{"driver: an uploaded"}, func(api *driver.API, sound driver.API) {
		api.GraphUpload = sound.GraphLaunch
	}},
	{"an empty graph cannot be launched", []string{"driver: an empty"}, func(api *driver.API, sound driver.API) {
		api.GraphInstantiateWithFlags = func(g driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
			if n, _ := sound.GraphGetNodes(g, nil); n == 0 {
				return 0, driver.ErrorInvalidValue
			}
			return sound.GraphInstantiateWithFlags(g, flags)
		}
	}},
	{"every event is a node", []string{"driver: a graph's nodes", "driver: an empty"}, func(api *driver.API, sound driver.API) {
		api.GraphGetNodes = func(g driver.Graph, nodes unsafe.Pointer) (uint64, driver.Result) {
			n, r := sound.GraphGetNodes(g, nodes)
			return n + 1, r
		}
	}},
	{"instantiating needs no context", []string{"driver: a graph needs a"}, func(api *driver.API, sound driver.API) {
		api.GraphInstantiateWithFlags = func(g driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
			x, r := sound.GraphInstantiateWithFlags(g, flags)
			return x, instead(r, driver.ErrorInvalidContext, success)
		}
	}},
	{"launching needs a context", []string{"driver: a graph needs no", "driver: a graph launches"}, func(api *driver.API, sound driver.API) {
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			if c, _ := sound.CtxGetCurrent(); c == 0 {
				return driver.ErrorInvalidContext
			}
			return sound.GraphLaunch(x, s)
		}
	}},
	{"a captured stream takes in a graph", []string{"driver: a capture takes"}, func(api *driver.API, sound driver.API) {
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			if status, _ := sound.StreamIsCapturing(s); status == driver.CaptureActive {
				return success
			}
			return sound.GraphLaunch(x, s)
		}
	}},
	{"instantiating is relaxed", []string{"driver: a global capture forbids"}, func(api *driver.API, sound driver.API) {
		api.GraphInstantiateWithFlags = func(g driver.Graph, flags uint64) (driver.GraphExec, driver.Result) {
			previous, _ := sound.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed)
			defer sound.ThreadExchangeStreamCaptureMode(previous)
			return sound.GraphInstantiateWithFlags(g, flags)
		}
	}},
	{"an update asks whether the graph is busy", []string{"driver: a global capture allows"}, func(api *driver.API, sound driver.API) {
		stream := launched(api, sound)
		api.GraphExecUpdate = func(x driver.GraphExec, g driver.Graph) (driver.GraphNode, driver.GraphExecUpdateResult, driver.Result) {
			sound.StreamQuery(stream(x))
			return sound.GraphExecUpdate(x, g)
		}
	}},
}
