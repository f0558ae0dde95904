package cuda

import "github.com/purecuda/cuda/driver"

// EventOptions say how an event is made. The zero value is the cheapest: it
// orders streams and can be waited for.
type EventOptions struct {
	// Timing makes the event usable for [Event.ElapsedTime]. Recording costs more.
	Timing bool
	// Blocking makes waits on the host sleep from the start, instead of asking the
	// driver in a loop at first: less load, later by some tens of microseconds. It
	// changes nothing for streams.
	Blocking bool
	// Interprocess makes the event usable for [Event.IPCHandle]. It excludes
	// Timing, and records in a capture ([ErrCapturing]).
	Interprocess bool
	// External makes recording and waiting inside a stream capture nodes of the
	// graph, which act at each replay, instead of orders within the capture.
	External bool
	// Device is the device that the event is for: where it is made if it is
	// exported before it was ever recorded, and whose streams alone may record it.
	// nil: the device of the first record; for an export, the current device of
	// context.Background(), which is device 0 of NVIDIA's driver.
	Device *Device
}

func (o *EventOptions) validate(op string) error {
	if o.Interprocess && o.Timing {
		return invalid(op, "an interprocess event cannot have timing: the driver shares the mark, not the clock")
	}
	return nil
}

// pooled reports whether such events are nobody else's, so that they can be used again.
func (o *EventOptions) pooled() bool { return !o.Interprocess && !o.External }

func (o *EventOptions) flags() (flags uint32) {
	if !o.Timing {
		flags |= driver.EventDisableTiming
	}
	if o.Blocking {
		flags |= driver.EventBlockingSync
	}
	if o.Interprocess {
		flags |= driver.EventInterprocess
	}
	return flags
}
