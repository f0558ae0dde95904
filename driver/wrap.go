package driver

import "runtime"

// Bound returns the functions of a, each run while c is current on the calling
// thread: CtxPushCurrent, the function and CtxPopCurrent, all on one thread. What
// was current is so again afterwards. If the push fails, its result is the call's
// and the function is not called; if only the pop does, its result is.
//
// The functions that concern the thread's state themselves are those of a, and so are
// the other fields. Later changes to a change nothing in what Bound returned.
func (a *API) Bound(c Context) *API {
	if f := a.fused(); f != nil {
		return a.with(f.Within(c))
	}
	push, pop := a.CtxPushCurrent, a.CtxPopCurrent
	return a.within(scope{
		enter: func() (_ CaptureMode, r Result) {
			runtime.LockOSThread()
			if r = push(c); r != Success {
				runtime.UnlockOSThread()
			}
			return 0, r
		},
		leave: func(_ CaptureMode, r Result) Result {
			if _, popped := pop(); r == Success {
				r = popped // else the function's own failure says more
			}
			runtime.UnlockOSThread()
			return r
		},
	})
}

// Quiet returns the functions of a, each run while the calling thread's capture mode is
// relaxed: ThreadExchangeStreamCaptureMode, the function, and
// ThreadExchangeStreamCaptureMode again, all on one thread. So no call ends a capture
// that somebody else runs in a stricter mode. The results are those of the functions,
// which are called even if the mode cannot be changed.
//
// As with [API.Bound], the functions that concern the thread's state themselves and the
// other fields are those of a. The two can be combined in either order: the one that is
// called last is entered first.
func (a *API) Quiet() *API {
	if f := a.fused(); f != nil {
		return a.with(f.Relaxed())
	}
	exchange := a.ThreadExchangeStreamCaptureMode
	return a.within(scope{
		enter: func() (CaptureMode, Result) {
			runtime.LockOSThread()
			was, r := exchange(CaptureModeRelaxed)
			if r != Success {
				was = unchanged
			}
			return was, Success
		},
		leave: func(was CaptureMode, r Result) Result {
			if was != unchanged {
				exchange(was)
			}
			runtime.UnlockOSThread()
			return r
		},
	})
}

// scope is what calls are made in: enter locks the goroutine to its thread and
// changes the thread's state, unless it fails, and leave, which is told what enter
// answered and the call's result, undoes both and says what the result is now.
type scope struct {
	enter func() (was CaptureMode, r Result)
	leave func(was CaptureMode, r Result) Result
}

// unchanged is no mode: the thread's was not changed.
const unchanged CaptureMode = -1

// within returns the functions of a, each run in s, one call after the other.
func (a *API) within(s scope) *API {
	b := *a
	b.Fused = nil
	b.wrap(s)
	return &b
}

// with returns the functions of b, and what else is in a.
func (a *API) with(b *API) *API {
	c := *b
	c.Source, c.Missing, c.Retained, c.Sleep, c.Races, c.Processes = a.Source, a.Missing, a.Retained, a.Sleep, a.Races, a.Processes
	return &c
}
