package native

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
)

// Mark is a native event in the hands of one Event, recorded on one stream. Record records
// it again only while it is the event's, on that stream, nobody on the host waits for it,
// and no flag is set; otherwise the event takes another mark. So a wait on the host keeps to
// the record that it found. A mark is never used again; its native event is, by others.
type Mark struct {
	n     *nativeEvent
	event driver.Event
	dev   *Device
	on    *Stream // nil if several streams may record it, or if it is of a device
	// state counts the waits on the host, and has the flags below.
	state atomic.Uint64
	// first is the place of the last record, and last the number that its stream had come to
	// when that was over: it is exact if no other call overlapped.
	first, last atomic.Uint64
	capture     *Capture // in which it was recorded
	share       *share   // of what other processes, or other Events, have too
}

const (
	// frozen: it is being replaced. The goroutine that replaces a mark freezes it before it
	// records the new one; one that has recorded the old mark looks for the flag afterwards,
	// and records again.
	frozen = 1 << 32
	// replaced: it is not the event's any more.
	replaced = 1 << 33
	// returned: its native event went back to the pool.
	returned = 1 << 34
	// shared: others, which have its handle, may record it.
	shared = 1 << 35
	// inGraph: it was recorded in a capture.
	inGraph = 1 << 36
	// unrecorded: it was made to be shared, and not recorded here.
	unrecorded = 1 << 37
	// refused: it is frozen, and the driver has refused to record another one.
	refused = 1 << 38
	dead    = frozen | replaced
)

// closedMark is the mark of closed events.
var closedMark = &Mark{}

func init() { closedMark.state.Store(dead | returned) }

func (m *Mark) flagged() bool { return m.state.Load()>>32 != 0 }

// setPlace notes the place of a record that began with w. The caller is still in s.
func (m *Mark) setPlace(s *Stream, w refs.Word) {
	last := s.epoch | numbers // others overlap, and may be recording the same
	if w.Alone() && s.gate.Quiet(1) {
		last = s.epoch | s.gate.Number()
	}
	store(&m.first, uint64(s.placeOf(w.Number())))
	store(&m.last, last)
}

// acquire takes a reference to what other processes or Events have too; other native events
// need none.
func (m *Mark) acquire() bool { return m.share == nil || m.share.Acquire() }

func (m *Mark) release() {
	if m.share != nil && m.share.Release() {
		m.dev.Driver.cleanupFailed("event", m.share.destroy())
	}
	runtime.KeepAlive(m.n)
}

// retire is called when m is not the event's any more: its native event goes back to the
// pool, or will with the last wait for it. own is the stream that the caller is in, or nil.
func (m *Mark) retire(own *Stream) {
	if m.share == nil { // else others may have it
		m.n.inUse.Store(false)
	}
	m.state.And(^uint64(refused))
	m.state.Or(dead)
	m.giveBack(own)
}

func (m *Mark) giveBack(own *Stream) {
	if m.state.CompareAndSwap(dead, dead|returned) { // it has no waits and no other flag
		m.dev.events.give(m, own)
	}
}

// EndWait takes back a wait on the host.
func (m *Mark) EndWait() {
	if m.state.Add(^uint64(0)) == dead {
		m.giveBack(nil)
	}
}

// Poll asks once whether m is done. It is a [wait.Point].
func (m *Mark) Poll() (done bool, err error) {
	if !m.acquire() {
		return true, errEventClosed
	}
	gone := m.share.orphaned() // asked first: what was done before its process died counts
	r := m.dev.mustOpen().Quiet.EventQuery(m.event)
	m.release()
	switch {
	case r == driver.Success:
		return true, nil
	case r != driver.ErrorNotReady:
		return false, eventError(r)
	case gone:
		return false, errOrphaned
	}
	return false, nil
}

// Place returns m's place in its stream, for waits on the host. While calls are under
// way there, one of them may be recording m, having begun before the wait.
func (m *Mark) Place() (queue any, first, last uint64) {
	state := m.state.Load()
	if m.on == nil || state&shared != 0 || state&replaced == 0 && !m.on.gate.Quiet(0) {
		return nil, 0, 0
	}
	last = m.last.Load()
	return m.on, last&^numbers | place(m.first.Load()).number(), last
}

// inCapture refuses a question that would end the capture in which m was recorded.
func (m *Mark) inCapture() error {
	detail := "record it outside the capture before it is used there"
	if !m.capture.over() {
		detail = "the capture is going on"
	}
	return &Refusal{Err: ErrCaptured, Detail: detail}
}

// eventError is the driver's answer about an event. Of one that was recorded in a capture,
// begun elsewhere, which has ended it says INVALID_VALUE; nothing else in these calls can be
// invalid.
func eventError(r driver.Result) error {
	switch r {
	case driver.Success:
		return nil
	case driver.ErrorInvalidValue:
		return &Refusal{Err: ErrCaptured, Code: r, Detail: "record it outside the capture before it is used there"}
	}
	return r
}

func mismatch(event, stream *Device) error {
	if event.Driver != stream.Driver {
		return errTwoDrivers
	}
	return &Refusal{Err: ErrDeviceMismatch,
		Detail: fmt.Sprintf("the event is of device %d, the stream of device %d; any stream may wait for it, but only its own device's may record it", event.Index, stream.Index)}
}

// newMark returns a mark for a record on s. In a capture its native event is one that
// nobody has had: a question about a used one may still be on its way to the driver.
func (e *Event) newMark(s *Stream, k *Capture) (*Mark, error) {
	if err := e.Options.Check(); err != nil {
		return nil, err
	}
	n, err := s.Dev.events.take(s.Dev, s, e.Options.flags(), k)
	if err != nil {
		return nil, err
	}
	m := &e.first
	if !e.claimed.CompareAndSwap(false, true) {
		m = new(Mark)
	}
	m.n, m.event, m.dev, m.on = n, n.event, s.Dev, s
	n.inUse.Store(true)
	if k != nil {
		m.capture = k
		m.state.Store(inGraph)
		k.events = append(k.events, n)
	}
	return m, nil
}

// create makes a mark that others can record too, unless the event has a mark.
func (e *Event) create(d *Device) (*Mark, error) {
	if err := e.Options.Check(); err != nil {
		return nil, err
	}
	if e.Options.Device != nil && e.Options.Device != d {
		return nil, mismatch(e.Options.Device, d)
	}
	n, err := d.events.make(d, e.Options.flags())
	if err != nil {
		return nil, err
	}
	return e.adopt(&Mark{n: n, event: n.event, dev: d}), nil
}

// adopt makes m, which others know, the event's mark, unless it has one. It returns the
// event's mark.
func (e *Event) adopt(m *Mark) *Mark {
	m.state.Store(shared | unrecorded)
	m.n.inUse.Store(true)
	if !e.mark.CompareAndSwap(nil, m) {
		m.n.inUse.Store(false)
		return e.mark.Load()
	}
	m.dev.Driver.Live.Events.Add(1)
	return m
}
