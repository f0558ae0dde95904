package cuda

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Synchronize waits until all work of all streams of the device, enqueued before
// the call by whomever in the process, is done. Other devices are not waited for.
// It blocks the calling goroutine and no thread, see [Device.SynchronizeContext].
func (d *Device) Synchronize() error { return d.SynchronizeContext(context.Background()) }

// SynchronizeContext waits until all work of all streams of the device, enqueued
// before the call, is done, or ctx is (cuCtxRecordEvent, and then as
// [Event.SynchronizeContext]). When ctx ends first the error matches ctx.Err(), and
// the work on the device goes on. Afterwards what kernels have printed is flushed to
// C's standard output, and what the memory pool has over its threshold is given back.
// During a capture on the device it fails with [ErrCapturing].
//
// Drivers before CUDA 12.5 have no such event. There one thread for each device, with
// any number of waits, is blocked instead (cuCtxSynchronize).
func (d *Device) SynchronizeContext(ctx context.Context) error {
	const op = "device synchronize"
	p, err := d.begin(op)
	if p.event == nil {
		return err
	}
	defer p.end()
	if err := p.wait(ctx, op); err != nil || p.event.round != nil {
		return err
	}
	return check(op, d.conclude(p.event))
}

// Done returns a channel that delivers one value, nil or an error, when all work
// of all streams of the device, enqueued before the call, is done, for use in a
// select; see [Event.Done].
func (d *Device) Done() <-chan error { return done(d, "device wait") }

// begin begins a wait for all work of d.
func (d *Device) begin(op string) (pending, error) {
	if err := d.usable(op); err != nil {
		return pending{}, err
	}
	c, r := d.context()
	if r != driver.Success {
		return pending{}, failure(op, r)
	}
	m, r := d.milestones.take(d)
	if r != driver.Success {
		return pending{}, failure(op, r)
	}
	beginning := &d.driver.captures.beginning
	beginning.RLock()
	defer beginning.RUnlock()
	if d.capturesOn() { // in any mode the record would end them
		d.milestones.put(m)
		return pending{}, &Error{Op: op, Err: ErrCapturing, Detail: fmt.Sprintf("a stream of device %d is being captured", d.index)}
	}
	r = d.driver.undisturbed(func() driver.Result { return d.driver.api.CtxRecordEvent(c, driver.Event(m.native)) })
	switch r {
	case driver.Success:
	case driver.ErrorCallRequiresNewerDriver:
		d.milestones.put(m)
		m = d.rounds.join(d)
	default:
		d.milestones.put(m)
		return pending{}, failure(op, r)
	}
	m.waits.Add(1)
	return pending{event: m, owner: m}, nil
}

// rounds are a device's calls of cuCtxSynchronize, one after the other.
type rounds struct {
	mu            sync.Mutex
	running, next *round
}

// round is one such call, which serves all waits that began before it.
type round struct {
	result atomic.Int64 // the driver's, and 1 more
}

// join returns a handle that stands for a round that has not begun.
func (rs *rounds) join(d *Device) *handle {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.next
	if r == nil {
		r = new(round)
		if rs.running == nil {
			rs.running = r
			go rs.run(d)
		} else {
			rs.next = r
		}
	}
	return &handle{dev: d, kind: kindMilestone, round: r}
}

// run runs rounds until no wait wants one.
func (rs *rounds) run(d *Device) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for rs.running != nil {
		r := rs.running
		rs.mu.Unlock()
		result := d.synchronizeBesideCaptures()
		r.result.Store(int64(result) + 1)
		rs.mu.Lock()
		rs.running, rs.next = rs.next, nil
	}
}

// synchronizeBesideCaptures waits, with a thread, for the device. It begins while no
// stream of it is being captured: the call would fail, and end the capture.
func (d *Device) synchronizeBesideCaptures() driver.Result {
	for {
		if !d.capturesOn() {
			r := d.driver.undisturbed(func() driver.Result {
				return d.bound(func(api *driver.API) driver.Result { return api.CtxSynchronize() })
			})
			if r != driver.ErrorStreamCaptureUnsupported || !d.capturesOn() {
				return r
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// poll reports whether the round is over.
func (r *round) poll(op string) (over bool, err error) {
	result := r.result.Load()
	if result == 0 {
		return false, nil
	}
	return true, check(op, driver.Result(result-1))
}
