package races

import (
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
)

// hostFunc is a function of the host in a stream or a graph.
type hostFunc struct {
	native driver.HostFunc // what the driver calls
	calls  []hostCall      // those to come
	last   bool            // there are no others
}

// release is called when no more calls are enqueued. The caller holds mu.
func (h *hostFunc) release() {
	if h.last = true; len(h.calls) == 0 {
		h.native.Release()
	}
}

type hostCall struct {
	before order.Point
	wait   *openWait
}

// hostOperation makes an operation of a function. The driver calls what calls f, and notes
// that the host knows what came before, and that what comes behind knows what the host knows.
func (d *detector) hostOperation(f driver.HostFunc) *operation {
	h := new(hostFunc)
	h.native = driver.NewHostFunc(func() {
		d.mu.Lock()
		var c hostCall
		if len(h.calls) > 0 { // else the launch was not by the table
			c, h.calls = h.calls[0], h.calls[1:]
			d.hostWaited(c.before)
		}
		d.unlock()
		f.Call()
		d.mu.Lock()
		d.ended(h, c)
		d.unlock()
	})
	return &operation{host: h, run: func(s *order.Sequence) order.Point {
		c := hostCall{before: s.Last(), wait: &openWait{at: s.Next()}}
		h.calls = append(h.calls, c)
		d.begin(c.wait)
		return c.wait.at
	}}
}

// ended is called when a call is over, or will not come.
func (d *detector) ended(h *hostFunc, c hostCall) {
	d.end(func(w *openWait) bool { return w == c.wait })
	if h.last {
		h.release()
	}
}

// refused takes back the last call, which will not come.
func (d *detector) refused(h *hostFunc) {
	if n := len(h.calls) - 1; n >= 0 {
		c := h.calls[n]
		h.calls = h.calls[:n]
		d.ended(h, c)
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
			o.host.last = true
			d.refused(o.host)
			o.host.release()
		case captured:
			s.capture.add(s, o)
		}
		return r
	}
}
