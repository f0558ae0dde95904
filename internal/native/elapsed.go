package native

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/purecuda/cuda/driver"
)

// ElapsedTime returns the time from e to end.
func (e *Event) ElapsedTime(end *Event) (time.Duration, error) {
	for {
		from, to := e.mark.Load(), end.mark.Load()
		if err := measurable(e, end, from, to); err != nil {
			return 0, err
		}
		ms, r := from.dev.mustOpen().Work.EventElapsedTime(from.event, to.event)
		if e.mark.Load() != from || end.mark.Load() != to {
			continue
		}
		runtime.KeepAlive(from)
		runtime.KeepAlive(to)
		switch r {
		case driver.Success:
			return time.Duration(math.RoundToEven(float64(ms) * 1e6)), nil
		case driver.ErrorInvalidHandle:
			return 0, &Refusal{Err: ErrNotRecorded, Code: r, Detail: "an external event in a graph is recorded when the graph is launched"}
		case driver.ErrorNotReady:
			return 0, &Refusal{Err: ErrNotCompleted, Code: r, Detail: "synchronize with the end event first"}
		}
		return 0, eventError(r)
	}
}

// measurable says which of two events breaks which rule. The rules are checked in this
// order, each for both events.
func measurable(e, end *Event, from, to *Mark) error {
	both := [...]struct {
		e    *Event
		m    *Mark
		name string
	}{{e, from, "the start event"}, {end, to, "the end event"}}
	for _, x := range both {
		if x.m == closedMark {
			return errEventClosed
		}
	}
	for _, x := range both {
		if !x.e.Options.Timing {
			return &Refusal{Err: ErrNotTimed, Detail: x.name}
		}
		if err := x.e.Options.Check(); err != nil {
			return err
		}
	}
	for _, x := range both {
		if x.m == nil || x.m.state.Load()&unrecorded != 0 {
			return &Refusal{Err: ErrNotRecorded, Detail: x.name}
		}
	}
	if from.dev != to.dev {
		if from.dev.Driver != to.dev.Driver {
			return errTwoDrivers
		}
		return &Refusal{Err: ErrDeviceMismatch,
			Detail: fmt.Sprintf("start is of device %d, end of device %d, and their clocks differ", from.dev.Index, to.dev.Index)}
	}
	if (from.state.Load()|to.state.Load())&inGraph != 0 {
		return &Refusal{Err: ErrCaptured, Detail: "to time a graph, take events with EventOptions.External"}
	}
	return nil
}
