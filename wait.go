package cuda

import (
	"context"
	"runtime"
	"time"

	"github.com/purecuda/cuda/driver"
)

// A wait asks the driver often while work is young and ever more seldom as it
// grows old. It holds no thread between questions. The bound on the first
// questions is a count and not a time, because under testing/synctest no time
// passes while a goroutine runs.
const (
	firstQueries = 64
	shortestNap  = 20 * time.Microsecond
	longestNap   = time.Millisecond
)

// await waits until the event of h completes, ctx ends, or h is closed. It
// holds a reference to h only while it asks. The caller keeps h's owner alive.
func await(ctx context.Context, op string, h *handle) error {
	closing := h.closing()
	for range firstQueries {
		if done, err := h.poll(op); done {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	nap := shortestNap
	timer := time.NewTimer(nap)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return &Error{Op: op, Err: ctx.Err(), Detail: "the work on the device goes on"}
		case <-closing:
		case <-timer.C:
		}
		if done, err := h.poll(op); done {
			return err
		}
		nap = min(nap+nap/4, longestNap)
		timer.Reset(nap)
	}
}

// poll asks once whether a wait for the event of h is over.
func (h *handle) poll(op string) (done bool, err error) {
	if !h.acquire() {
		return true, closed(op)
	}
	defer h.release()
	beginning := &h.dev.driver.captures.beginning
	beginning.RLock()
	defer beginning.RUnlock()
	if h.covers.recording() && h.dev.driver.captures.active.Load() != 0 { // perhaps in a capture that has just begun
		return false, nil
	}
	if err := h.notCaptured(op); err != nil { // since the wait began
		return true, err
	}
	switch r := h.dev.driver.relaxed(h.queryEvent); r {
	case driver.ErrorNotReady:
		return false, nil
	default:
		return true, checkEvent(op, r)
	}
}

// Done returns a channel that delivers one value, nil or an error, when the
// work that the event marks is done, for use in a select:
//
//	select {
//	case err := <-e.Done():
//	case <-ctx.Done():
//	}
//
// A caller that no longer wants the value may forget the channel: what waits
// behind it is one goroutine, which ends with the work or when the event is
// closed. For an event that was never recorded the value is there at once.
func (e *Event) Done() <-chan error {
	const op = "event wait"
	done := make(chan error, 1)
	if e == nil {
		done <- nilEvent(op)
		return done
	}
	h, err := e.acquire(op)
	if h == nil {
		done <- err
		return done
	}
	h.release() // a Close must end the wait, so the wait holds no reference
	if err := h.notCaptured(op); err != nil {
		done <- err
		return done
	}
	go func() {
		done <- await(context.Background(), op, h)
		runtime.KeepAlive(e) // the event must not be collected under the wait
	}()
	return done
}
