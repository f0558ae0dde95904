package races

import (
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// hostFunc is a function of the host in a stream or a graph.
type hostFunc struct {
	native  driver.HostFunc // what the driver calls
	calls   []*hostCall     // those to come, in the order of their launches
	running int
	unended []*hostCall // those of which it is not known whether they are over
	last    bool        // no others are enqueued
}

// hostCall is a call that was enqueued: that of an executable graph, or nil. Those of one graph
// come in order; of several, nobody knows which one comes first.
type hostCall struct {
	exec   *graphExec
	before order.Point
	wait   *openWait
}

// hostOperation makes an operation of a function. The driver calls what calls f, and notes
// that the host knows what came before, and that what comes behind knows what the host knows.
func (d *detector) hostOperation(f driver.HostFunc) *operation {
	h := new(hostFunc)
	h.native = driver.NewHostFunc(func() {
		d.mu.Lock()
		sure := d.began(h)
		d.unlock()
		f.Call()
		d.mu.Lock()
		d.ended(h, sure)
		d.unlock()
	})
	return &operation{host: h, run: func(s *order.Sequence) order.Point {
		c := &hostCall{before: s.Last(), wait: &openWait{at: s.Next()}}
		h.calls = append(h.calls, c)
		d.begin(c.wait)
		return c.wait.at
	}}
}

// began is called when a call begins. It returns which one it is, nil if that is not known.
func (d *detector) began(h *hostFunc) (sure *hostCall) {
	h.running++
	if len(h.calls) == 0 { // the launch was not by the table
		return nil
	}
	c := h.calls[0]
	h.calls = h.calls[1:]
	other := func(o *hostCall) bool { return o.exec != c.exec }
	if slices.ContainsFunc(h.calls, other) || slices.ContainsFunc(h.unended, other) {
		h.unended = append(h.unended, c)
		return nil
	}
	d.hostWaited(c.before)
	return c
}

// ended is called when a call is over.
func (d *detector) ended(h *hostFunc, sure *hostCall) {
	h.running--
	over := []*hostCall{sure}
	if len(h.calls) == 0 && h.running == 0 {
		over = append(over, h.unended...)
		h.unended = nil
	}
	d.over(over...)
	h.settle()
}

// over ends the waits of calls; nil ones have none.
func (d *detector) over(calls ...*hostCall) {
	d.end(func(w *openWait) bool {
		return slices.ContainsFunc(calls, func(c *hostCall) bool { return c != nil && c.wait == w })
	})
}

// refused takes back a call that will not come.
func (d *detector) refused(h *hostFunc, c *hostCall) {
	h.calls = slices.DeleteFunc(h.calls, func(o *hostCall) bool { return o == c })
	d.over(c)
	h.settle()
}

// release is called when no others are enqueued. The caller holds mu.
func (h *hostFunc) release() {
	h.last = true
	h.settle()
}

// settle drops the function when it is not called any more.
func (h *hostFunc) settle() {
	if h.last && len(h.calls) == 0 && h.running == 0 {
		h.native.Release()
	}
}

func (d *detector) wrapHostFuncs(api *driver.API) {
	api.LaunchHostFunc = func(on driver.Stream, f driver.HostFunc) driver.Result {
		s := d.stream(on)
		s.turn.Lock()
		defer s.turn.Unlock()
		o := d.hostOperation(f)
		d.mu.Lock()
		captured := s.capture != nil
		if !captured { // note it before it runs
			d.noted(s, o)
			o.host.last = true
		}
		d.unlock()
		r := d.api.LaunchHostFunc(on, o.host.native)
		d.mu.Lock()
		defer d.unlock()
		switch {
		case r != driver.Success:
			for _, c := range slices.Clone(o.host.calls) {
				d.refused(o.host, c)
			}
			o.host.release()
		case captured:
			s.capture.add(s, o)
		}
		return r
	}
}
