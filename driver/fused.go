package driver

import (
	"reflect"
	"unsafe"
)

// Fused does at once, in one transition into C, what takes several functions of a
// table. A table may do without. [API.Bound] and [API.Quiet] use it where they can.
type Fused struct {
	// Of has the functions that are meant. [API.Complete] takes Fused away from
	// a copy of it in which any function was replaced, so that nothing passes by a
	// wrapper.
	Of *API
	// Within returns the same functions, but c is current on the calling thread for the
	// time of each call, and what was is again afterwards: CtxPushCurrent, the function
	// and CtxPopCurrent, all on one thread. It may have Fused of its own.
	Within func(c Context) *API
	// Relaxed returns the same functions, but the calling thread's capture mode is
	// relaxed for the time of each call: ThreadExchangeStreamCaptureMode, the function,
	// and ThreadExchangeStreamCaptureMode again. A failure to change the mode does not
	// count. It may have Fused of its own.
	Relaxed func() *API
	// RecordWait is EventRecord on from and, if that succeeds, StreamWaitEvent of to.
	RecordWait func(e Event, from, to Stream) Result
}

// fused returns a.Fused if it is of the functions that a has.
func (a *API) fused() *Fused {
	if a.Fused == nil || !a.sameFunctions(a.Fused.Of) {
		return nil
	}
	return a.Fused
}

// sameFunctions reports whether a and b have the same functions, and not only equal
// ones: closures of the same code are told apart.
func (a *API) sameFunctions(b *API) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		if x.Field(i).Kind() == reflect.Func && closure(x.Field(i)) != closure(y.Field(i)) {
			return false
		}
	}
	return true
}

// closure returns the address of a func's closure, which is what a func variable holds.
func closure(f reflect.Value) unsafe.Pointer {
	return *(*unsafe.Pointer)(f.Addr().UnsafePointer())
}
