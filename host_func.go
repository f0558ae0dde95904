package cuda

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/purecuda/cuda/driver"
)

// LaunchHostFunc enqueues on s a call of f on the host (cuLaunchHostFunc). It
// returns at once. f is called when everything that was enqueued on s before is
// done, and what is enqueued later waits until f has returned. It is called
// exactly once, with nil; or, if the device fails before its turn, with the error,
// on another goroutine and no longer in order. In a captured stream f becomes a
// node of the graph and is called once in each launch of it.
//
// f runs on a thread of the driver, which runs all host functions of the process
// one at a time. It must be short, and must not wait for work on the device, nor
// enqueue any but records of events, nor allocate or free: the driver refuses
// most of that, and nobody says what comes of the rest. A panic in f is caught and goes to [Driver.OnCleanupError]. It must not call
// runtime.Goexit, as a test's FailNow does: the thread is not Go's.
//
// The stream stands still from the end of the work before until f has returned and
// the driver has noticed. To learn that work is done, wait with SynchronizeContext
// or take Done, which cost the device nothing.
func (s *Stream) LaunchHostFunc(f func(error)) error {
	const op = "host function"
	if f == nil {
		return invalid(op, "the function is nil")
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	d := s.dev.driver
	graph := s.capture()
	c := &hostCall{f: f, dev: s.dev, once: graph == nil}
	c.native = driver.NewHostFunc(c.run)
	if c.once {
		d.hostCalls.expect(c)
	}
	elsewhere := false
	r := s.call(func(api *driver.API, h driver.Stream) (r driver.Result) {
		if c.once {
			status := driver.CaptureNone
			if status, r = api.StreamIsCapturing(h); r != driver.Success {
				return r
			}
			if elsewhere = status != driver.CaptureNone; elsewhere {
				return driver.ErrorStreamCaptureUnsupported
			}
		}
		return api.LaunchHostFunc(h, c.native)
	})
	if c.once {
		d.hostCalls.asked(c, r == driver.Success)
	}
	switch {
	case elsewhere: // nobody would know how often it is called
		c.native.Release()
		return &Error{Op: op, Code: r, Err: ErrCapturing, Detail: "the capture was not begun by Stream.Capture, or has failed"}
	case r != driver.Success:
		c.native.Release()
		return failure(op, r)
	case graph != nil:
		graph.keepCall(c)
	}
	return nil
}

// hostCall is a function that the driver was asked to call.
type hostCall struct {
	f      func(error)
	dev    *Device
	native driver.HostFunc
	once   bool // it is in no graph

	// Guarded by the mutex of hostCalls:
	pending int // calls that have not come
	asking  int // launches inside the driver: it may refuse to owe some of these calls
}

// run is what the driver calls, on a thread of its own.
func (c *hostCall) run() {
	if c.dev.driver.hostCalls.take(c) {
		c.call(nil)
	}
}

func (c *hostCall) call(err error) {
	if c.once {
		c.native.Release()
	}
	defer func() {
		if v := recover(); v != nil {
			c.dev.driver.cleanupFailed(&Error{Op: "host function", Err: fmt.Errorf("panic: %v", v), Detail: string(debug.Stack())})
		}
	}()
	c.f(err)
}

// hostCalls are the calls that the driver owes. When a device has failed the
// driver calls nothing any more and does not say so; therefore a timer asks now and
// then, for as long as there are such calls.
type hostCalls struct {
	mu       sync.Mutex
	owed     map[*hostCall]struct{}
	watching bool
}

// hostCallWatch is how often a device is asked whether it has failed.
const hostCallWatch = 10 * time.Millisecond

func (q *hostCalls) expect(c *hostCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owed == nil {
		q.owed = map[*hostCall]struct{}{}
	}
	c.pending++
	c.asking++
	q.owed[c] = struct{}{}
	if !q.watching {
		q.watching = true
		q.watchLater()
	}
}

// asked is called when the driver has been asked for a call that was expected. If
// it refused, the call is owed no longer.
func (q *hostCalls) asked(c *hostCall, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.asking--
	if !ok {
		q.settle(c)
	}
}

// settle takes one owed call of c off the books.
func (q *hostCalls) settle(c *hostCall) {
	if c.pending--; c.pending == 0 {
		delete(q.owed, c)
	}
}

// take takes one owed call, if there is one.
func (q *hostCalls) take(c *hostCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.pending == 0 {
		return false // the device had failed, and the function was told so
	}
	q.settle(c)
	return true
}

// watchLater has no goroutine wait, which would keep a synctest bubble from
// ending.
func (q *hostCalls) watchLater() { time.AfterFunc(hostCallWatch, q.watch) }

func (q *hostCalls) watch() {
	failed := map[*Device]driver.Result{}
	q.mu.Lock()
	for c := range q.owed {
		failed[c.dev] = driver.Success
	}
	if len(failed) == 0 {
		q.watching = false
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	for d := range failed {
		failed[d] = d.failed()
	}
	for c := q.lost(failed); c != nil; c = q.lost(failed) {
		c.call(failure("host function", failed[c.dev]))
	}
	q.watchLater()
}

// lost takes a call that a failed device owes; nil if there is none.
func (q *hostCalls) lost(failed map[*Device]driver.Result) *hostCall {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.owed {
		if failed[c.dev] == driver.Success || c.asking > 0 { // or it is not known yet what is owed
			continue
		}
		q.settle(c)
		return c
	}
	return nil
}

// failed asks whether work on the device has failed for good. Making an event is
// a call that answers so and that disturbs nothing.
func (d *Device) failed() driver.Result {
	r := d.driver.relaxed(func() driver.Result {
		e, r := d.createEvent(driver.EventDisableTiming)
		if r == driver.Success {
			d.destroyEvent(e)
		}
		return r
	})
	if !r.Sticky() {
		return driver.Success
	}
	return r
}

// keepCall holds c for as long as the graph is there.
func (c *capture) keepCall(f *hostCall) {
	h := newHandle(f.dev, kindHostFunc, uint64(f.native))
	h.mem = &h.memory
	c.keep(h)
	h.word.Or(letGo) // nobody but the graph owns it
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, f)
}

// expectCalls notes, before a launch of the graph, that it will owe a call of each
// of its host functions.
func (k *held) expectCalls() {
	for _, c := range k.calls {
		c.dev.driver.hostCalls.expect(c)
	}
}

// askedForCalls is called after the launch.
func (k *held) askedForCalls(ok bool) {
	for _, c := range k.calls {
		c.dev.driver.hostCalls.asked(c, ok)
	}
}
