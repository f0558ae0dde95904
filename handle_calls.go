package cuda

import (
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// onStream calls f with the native stream of h and the table of functions to call.
// The default stream needs its device's context current, created ones do not. Calls on a
// stream that is being captured are made one at a time.
func (h *handle) onStream(f func(api *driver.API, s driver.Stream) driver.Result) driver.Result {
	if !h.aloneIfCaptured() {
		return h.onStreamAnyway(f)
	}
	defer h.dev.driver.captures.touching.Unlock()
	return h.onStreamAnyway(f)
}

// onStreamAnyway is onStream for who has seen to it that no other call touches a
// capture of the stream, or does not touch it.
func (h *handle) onStreamAnyway(f func(api *driver.API, s driver.Stream) driver.Result) driver.Result {
	native := driver.Stream(h.native)
	if native != 0 {
		if r := f(h.dev.driver.api, native); r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.bound(func(api *driver.API) driver.Result { return f(api, native) })
}

// queryStream asks the driver; the caller holds a reference.
func (h *handle) queryStream() driver.Result {
	if h.native != 0 { // as onStream, for speed
		r := h.dev.driver.api.StreamQuery(driver.Stream(h.native))
		if r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.onStream(func(api *driver.API, s driver.Stream) driver.Result { return api.StreamQuery(s) })
}

// queryStreamRelaxed is queryStream in relaxed capture mode.
func (h *handle) queryStreamRelaxed() driver.Result {
	if api := h.dev.driver.relaxedAPI; api != nil && h.native != 0 {
		if r := api.StreamQuery(driver.Stream(h.native)); r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.driver.relaxed(h.queryStream)
}

// capturing reports whether the stream of h is being captured, or depends on a
// capture.
func (h *handle) capturing() bool {
	status := driver.CaptureNone
	r := h.onStreamAnyway(func(api *driver.API, s driver.Stream) (r driver.Result) {
		status, r = api.StreamIsCapturing(s)
		return r
	})
	return r != driver.Success || status != driver.CaptureNone
}

// record records e on the stream of h. Whatever it covers, the caller notes.
func (h *handle) record(e driver.Event) driver.Result {
	if h.native != 0 { // as onStream, for speed
		r := h.dev.driver.api.EventRecord(e, driver.Stream(h.native))
		if r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.bound(func(api *driver.API) driver.Result { return api.EventRecord(e, driver.Stream(h.native)) })
}

// wait makes the stream of h wait for e.
func (h *handle) wait(e driver.Event) driver.Result {
	if h.native != 0 { // as onStream, for speed
		r := h.dev.driver.api.StreamWaitEvent(driver.Stream(h.native), e, 0)
		if r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.bound(func(api *driver.API) driver.Result { return api.StreamWaitEvent(driver.Stream(h.native), e, 0) })
}

// queryEvent asks the driver; the caller holds a reference.
func (h *handle) queryEvent() driver.Result {
	r := h.dev.driver.api.EventQuery(driver.Event(h.native))
	if r == driver.ErrorInvalidContext {
		r = h.dev.bound(func(api *driver.API) driver.Result { return api.EventQuery(driver.Event(h.native)) })
	}
	return r
}

// queryEventRelaxed is queryEvent in relaxed capture mode.
func (h *handle) queryEventRelaxed() driver.Result {
	if api := h.dev.driver.relaxedAPI; api != nil {
		if r := api.EventQuery(driver.Event(h.native)); r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.dev.driver.relaxed(h.queryEvent)
}

// relaxed runs f while the calling thread's capture mode is relaxed. What the
// library does on its own behalf, waiting and cleaning up, goes through it:
// in the default mode a query on any thread kills a capture that runs on
// another.
func (d *Driver) relaxed(f func() driver.Result) driver.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if previous, r := d.api.ThreadExchangeStreamCaptureMode(driver.CaptureModeRelaxed); r == driver.Success {
		defer d.api.ThreadExchangeStreamCaptureMode(previous)
	}
	return f()
}
