package native

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/purecuda/cuda/driver"
)

// hostCall is a function that the driver was asked to call.
type hostCall struct {
	f      func(error)
	dev    *Device
	native driver.HostFunc
	once   bool // it is in no graph
	// Guarded by the mutex of hostCalls:
	outstanding int // calls that have not come
	launching   int // launches inside the driver, which may refuse
}

// LaunchHostFunc enqueues a call of f (cuLaunchHostFunc). f gets an error if the device
// fails before its turn.
func (s *Stream) LaunchHostFunc(f func(error)) error {
	k, err := s.enter()
	if err != nil {
		return err
	}
	defer s.exit(k)
	c := &hostCall{f: f, dev: s.Dev, once: k == nil}
	c.native = driver.NewHostFunc(c.run)
	calls := &s.Dev.Driver.hostCalls
	if k != nil {
		if r := s.work.LaunchHostFunc(s.Native, c.native); r != driver.Success {
			c.native.Release()
			return r
		}
		k.held.keepCall(c)
		return nil
	}
	if s.isCaptured() { // nobody would know how often it is called
		c.native.Release()
		return &Refusal{Err: ErrCapturing, Code: driver.ErrorStreamCaptureUnsupported, Detail: "the capture was not begun by Stream.Capture, or has failed"}
	}
	calls.expect(c)
	r := s.work.LaunchHostFunc(s.Native, c.native)
	calls.launched(c, r == driver.Success)
	if r != driver.Success {
		c.native.Release()
		return r
	}
	return nil
}

// run is what the driver calls, on a thread of its own.
func (c *hostCall) run() {
	if c.dev.Driver.hostCalls.take(c) {
		c.call(nil)
	}
}

func (c *hostCall) call(err error) {
	if c.once {
		c.native.Release()
	}
	defer func() {
		if v := recover(); v != nil {
			c.dev.Driver.OnCleanupError("host function", &Refusal{Err: fmt.Errorf("panic: %v", v), Detail: string(debug.Stack())})
		}
	}()
	c.f(err)
}

// hostCalls are the calls that are outstanding. When a device has failed the driver calls
// nothing any more and does not say so; therefore a timer asks now and then, for as long as
// there are such calls.
type hostCalls struct {
	mu      sync.Mutex
	all     map[*hostCall]struct{}
	polling bool
}

// hostCallPoll is how often a device is asked whether it has failed.
const hostCallPoll = 10 * time.Millisecond

// expect notes, before a launch, that a call of c will be outstanding.
func (q *hostCalls) expect(c *hostCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all == nil {
		q.all = map[*hostCall]struct{}{}
	}
	c.outstanding++
	c.launching++
	q.all[c] = struct{}{}
	if !q.polling {
		q.polling = true
		q.pollLater()
	}
}

// launched is called when the driver was asked for a call that was expected.
func (q *hostCalls) launched(c *hostCall, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.launching--
	if !ok {
		q.settle(c)
	}
}

// settle takes one outstanding call of c off.
func (q *hostCalls) settle(c *hostCall) {
	if c.outstanding--; c.outstanding == 0 {
		delete(q.all, c)
	}
}

// take takes an outstanding call off; false if there is none: the device had failed, and the
// function was told so.
func (q *hostCalls) take(c *hostCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.outstanding == 0 {
		return false
	}
	q.settle(c)
	return true
}

// pollLater has no goroutine wait, which would keep a synctest bubble from ending.
func (q *hostCalls) pollLater() { time.AfterFunc(hostCallPoll, q.poll) }

func (q *hostCalls) poll() {
	failed := map[*Device]driver.Result{}
	q.mu.Lock()
	for c := range q.all {
		failed[c.dev] = driver.Success
	}
	if len(failed) == 0 {
		q.polling = false
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	for d := range failed {
		failed[d] = d.lost()
	}
	for c := q.takeLost(failed); c != nil; c = q.takeLost(failed) {
		c.call(failed[c.dev])
	}
	q.pollLater()
}

// takeLost takes a call off that a failed device will not make; nil if there is none.
func (q *hostCalls) takeLost(failed map[*Device]driver.Result) *hostCall {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.all {
		if failed[c.dev] == driver.Success || c.launching > 0 { // or it is not known yet whether one is outstanding
			continue
		}
		q.settle(c)
		return c
	}
	return nil
}

// lost asks whether work on the device has failed for good. Making an event is a call that
// answers so and that disturbs nothing.
func (d *Device) lost() driver.Result {
	api := d.mustOpen().QuietBound
	e, r := api.EventCreate(driver.EventDisableTiming)
	if r == driver.Success {
		api.EventDestroy(e)
	}
	if !r.Sticky() {
		return driver.Success
	}
	return r
}
