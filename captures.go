package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// captures are the captures that are going on in a driver.
type captures struct {
	active atomic.Int64 // asked by every call that a capture concerns, 0 most of the time
	_      [56]byte     // what is written all the time shall not be in the same cache line
	// beginning is held where a stream or an event may become part of a capture; for
	// reading where the library, on its own behalf, asks or waits for streams and
	// events, which must not be part of one. Nobody who holds it waits for the device.
	beginning sync.RWMutex
	// touching is held for each call of the driver that names what may be part of a
	// capture: the driver does not synchronise these, and crashes. It is taken last.
	touching sync.Mutex
	mu       sync.Mutex
	byID     map[uint64]*capture
	parked   []*handle // memory to be freed when they have ended
}

// capture is one that was begun by [Stream.Capture].
type capture struct {
	id      uint64
	mu      sync.Mutex
	devices []*Device // of the streams that are part of it
	held
}

// alone runs f, calls for what may be part of a capture, while nobody else is in such.
func (c *captures) alone(f func() driver.Result) driver.Result {
	if c.active.Load() == 0 {
		return f()
	}
	c.touching.Lock()
	defer c.touching.Unlock()
	return f()
}

// aloneIfCaptured locks touching if the stream of h is part of a capture, and reports
// whether it did.
func (h *handle) aloneIfCaptured() bool {
	c := &h.dev.driver.captures
	if c.active.Load() == 0 || !h.capturing() {
		return false
	}
	c.touching.Lock()
	return true
}

// settle waits for the calls on the stream of h that began when there was no capture,
// so that they took no lock. Others may come all the time, so it does not wait for long.
func (h *handle) settle() {
	for range 1000 {
		others := h.word.Load()&references - 1 // the caller's
		if h.lasting.Load() != 0 {
			others--
		}
		if int64(others) <= 0 {
			return
		}
		runtime.Gosched()
	}
}

// has reports whether a capture is going on.
func (c *captures) has(id uint64) bool {
	if c.active.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id] != nil
}

// over notes that a capture has ended, and returns the memory that was parked.
func (c *captures) over(k *capture) (parked []*handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, k.id)
	c.active.Add(-1)
	parked, c.parked = c.parked, nil
	return parked
}

// park keeps memory until a capture ends; false if none is going on.
func (c *captures) park(h *handle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active.Load() == 0 {
		return false
	}
	c.parked = append(c.parked, h)
	return true
}

// capture returns the capture that s is part of, nil if there is none.
func (s *Stream) capture() *capture {
	d := s.dev.driver
	if d.captures.active.Load() == 0 {
		return nil
	}
	var id uint64
	r := d.captures.alone(func() driver.Result {
		return s.h.onStreamAnyway(func(api *driver.API, h driver.Stream) (r driver.Result) {
			var status driver.CaptureStatus
			if status, id, r = api.StreamGetCaptureInfo(h); status == driver.CaptureNone {
				id = 0
			}
			return r
		})
	})
	if r != driver.Success {
		return nil
	}
	d.captures.mu.Lock()
	defer d.captures.mu.Unlock()
	return d.captures.byID[id]
}

// notCapturing refuses what a capture of s would not survive, or would make wrong.
// If captures that others began matter too, it asks the driver in any case.
func (s *Stream) notCapturing(op string, others bool) error {
	if !others && s.dev.driver.captures.active.Load() == 0 || !s.h.capturing() {
		return nil
	}
	return &Error{Op: op, Err: ErrCapturing, Detail: s.String() + ": do it before the capture or after it"}
}

// neverCaptured refuses a wait of s, a default stream, for a part of a capture.
func (s *Stream) neverCaptured(op string) error {
	return &Error{Op: op, Err: ErrCapturing,
		Detail: s.String() + " would have to wait for a part of a capture, and a default stream can be in none: take a created stream"}
}

// outside refuses a wait of s, which is being captured, for what is no part of
// the capture: the driver would end it.
func (s *Stream) outside(op, what string) error {
	return &Error{Op: op, Err: ErrCapturing,
		Detail: fmt.Sprintf("%v is being captured and %s outside the capture; if each launch of the graph shall wait for it, take an event with EventOptions.External", s, what)}
}

// capturesOn reports whether streams of the device are being captured.
func (d *Device) capturesOn() bool {
	c := &d.driver.captures
	if c.active.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.byID {
		k.mu.Lock()
		on := slices.Contains(k.devices, d)
		k.mu.Unlock()
		if on {
			return true
		}
	}
	return false
}

// undisturbed runs f, a call that could end another goroutine's capture, so that
// it does not.
func (d *Driver) undisturbed(f func() driver.Result) driver.Result {
	if d.captures.active.Load() == 0 {
		return f()
	}
	return d.relaxed(f)
}

// joinedBy notes that s is part of the capture.
func (c *capture) joinedBy(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.devices, s.dev) {
		c.devices = append(c.devices, s.dev)
	}
}

// keep holds h, which work in the capture uses, for as long as the graph is there.
func (c *capture) keep(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.handles, h) {
		h.retain()
		c.handles = append(c.handles, h)
	}
}

// held is what a graph and those made from it need: buffers, events and host
// functions. The last of them to be closed lets go.
type held struct {
	handles []*handle
	calls   []*hostCall
	users   atomic.Int64
}

func (k *held) release() {
	if k.users.Add(-1) > 0 {
		return
	}
	for _, h := range k.handles {
		h.letOff()
	}
	k.handles, k.calls = nil, nil
}
