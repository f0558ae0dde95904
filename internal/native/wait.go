package native

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/wait"
)

// point is what a wait on the host is for.
type point interface {
	wait.Point
	// EndWait is called once, when nobody waits for it any more.
	EndWait()
}

// Pending is a wait on the host that has begun: what it is for is settled, and later records
// and later work do not matter to it. End ends it; Notify does so too.
type Pending struct {
	point point // nil: there is nothing to wait for
	dev   *Device
	owner *wait.Owner
	spin  bool
	// flush, unless nil, has Wait end with the driver's own wait for the event, which is done
	// by then: it hands what kernels have printed to C's standard output, and takes note of
	// the frees of pool memory that are done.
	flush *flushes
}

// flushes say whether a wait for a stream must end with a flush.
type flushes struct {
	due   atomic.Bool  // kernels or frees were enqueued since a wait took the last flush
	taken atomic.Int32 // waits that have taken one and not made it yet
}

// later has the next wait take a flush.
func (f *flushes) later() {
	if !f.due.Load() {
		f.due.Store(true)
	}
}

// take reports whether a wait must flush. It is called before the wait's mark is recorded:
// what is enqueued later is for the next wait. A flush that another wait has taken may come
// too late for this one.
func (f *flushes) take() bool {
	if !f.due.Load() && f.taken.Load() == 0 {
		return false
	}
	f.taken.Add(1) // before due is cleared, as others look the other way round
	f.due.Store(false)
	return true
}

// made ends what take began.
func (f *flushes) made() { f.taken.Add(-1) }

// left ends it too, without a flush.
func (f *flushes) left() {
	f.due.Store(true)
	f.taken.Add(-1)
}

// Over reports whether there is nothing to wait for.
func (p *Pending) Over() bool { return p.point == nil }

// Wait waits until the point is done, or ctx is.
func (p *Pending) Wait(ctx context.Context) error {
	err := p.dev.Poller.Wait(ctx, p.point, p.owner, p.spin)
	if p.flush == nil || err != nil {
		return err
	}
	if p.owner == nil {
		p.dev.noteLoweredPool()
	}
	if err = p.dev.flush(p.point); err == nil {
		p.flush.made()
		p.flush = nil
	}
	return err
}

// Notify has f called when the point is done, and ends the wait.
func (p *Pending) Notify(f func(error)) {
	point := p.point
	p.leaveFlush()
	p.dev.Poller.Notify(point, p.owner, func(err error) {
		point.EndWait()
		f(err)
	})
}

// End ends the wait.
func (p *Pending) End() {
	if p.point != nil {
		p.leaveFlush()
		p.point.EndWait()
	}
}

// leaveFlush leaves a flush that was not made to the next wait.
func (p *Pending) leaveFlush() {
	if p.flush != nil {
		p.flush.left()
		p.flush = nil
	}
}

// Several is p for [wait.All] and [wait.Any].
func (p *Pending) Several() wait.Pending {
	if p.point == nil {
		return wait.Pending{}
	}
	return wait.Pending{Poller: &p.dev.Poller, Point: p.point, Owner: p.owner, NoSpin: !p.spin}
}

// TryFast asks a few times whether the event's last record is done, before a wait for it
// begins: for the shortest waits, of a program that waits for one thing at a time.
func (e *Event) TryFast() bool {
	m := e.mark.Load()
	if m == nil || m.flagged() || e.Options.Blocking {
		return false
	}
	done, err := m.dev.Poller.TryFast(m)
	return done && err == nil && e.mark.Load() == m
}

// BeginWait begins a wait for the last record.
func (e *Event) BeginWait() (Pending, error) {
	for {
		m := e.mark.Load()
		switch {
		case m == nil:
			return Pending{}, e.Options.Check()
		case m == closedMark:
			return Pending{}, errEventClosed
		case m.state.Load()&inGraph != 0:
			return Pending{}, m.inCapture()
		}
		m.state.Add(1)
		if e.mark.Load() == m {
			return Pending{point: m, dev: m.dev, owner: &e.Owner, spin: !e.Options.Blocking}, nil
		}
		m.EndWait()
	}
}

// markHere records a mark on s that belongs to no Event, with one wait. The caller is in s,
// without having counted the record.
func (s *Stream) markHere() (*Mark, error) {
	n, err := s.Dev.events.take(s.Dev, s, driver.EventDisableTiming, nil)
	if err != nil {
		return nil, err
	}
	m := &Mark{n: n, event: n.event, dev: s.Dev, on: s}
	m.state.Store(dead | 1)
	w := s.gate.EnterRecord()
	defer s.leave()
	if r := s.work.EventRecord(n.event, s.Native); r != driver.Success {
		return nil, r
	}
	m.first.Store(uint64(s.placeOf(w.Number())))
	m.last.Store(s.epoch | s.gate.Number())
	return m, nil
}

// BeginWait begins a wait for all that s has been given.
func (s *Stream) BeginWait() (Pending, error) {
	if err := s.enterUncaptured(); err != nil {
		return Pending{}, err
	}
	defer s.leave()
	var flush *flushes
	if s.kind == kindExternal { // others enqueue there too
		flush = new(flushes)
	} else if s.flushes.take() {
		flush = &s.flushes
	} else if done, err := s.tryFast(); done || err != nil {
		return Pending{}, err
	}
	m, err := s.markHere()
	if err != nil {
		if flush != nil {
			flush.left()
		}
		return Pending{}, err
	}
	return Pending{point: m, dev: s.Dev, owner: &s.Owner, spin: true, flush: flush}, nil
}

// tryFast asks whether s is idle, unless others wait for the device.
func (s *Stream) tryFast() (done bool, err error) { return s.Dev.Poller.TryFast(idle{s}) }

// idle is a stream as a point, for a question before a wait.
type idle struct{ s *Stream }

func (i idle) Poll() (bool, error)                  { return answer(i.s.quiet.StreamQuery(i.s.Native)) }
func (idle) Place() (queue any, first, last uint64) { return nil, 0, 0 }

// flush makes the driver's own wait for a point that is done.
func (d *Device) flush(p point) error {
	if g, ok := p.(*group); ok {
		for _, m := range g.marks {
			if err := d.flush(m); err != nil {
				return err
			}
		}
		return nil
	}
	d.flushing.Lock()
	defer d.flushing.Unlock()
	return failed(d.mustOpen().Quiet.EventSynchronize(p.(*Mark).event))
}

// BeginWait begins a wait for all work of the device.
func (d *Device) BeginWait() (Pending, error) {
	t, err := d.Open()
	if err != nil {
		return Pending{}, err
	}
	n, err := d.events.take(d, nil, driver.EventDisableTiming, nil)
	if err != nil {
		return Pending{}, err
	}
	r, err := d.recordAll(t, n.event)
	if err == nil && r == driver.Success {
		m := &Mark{n: n, event: n.event, dev: d}
		m.state.Store(dead | 1)
		return Pending{point: m, dev: d, spin: true, flush: new(flushes)}, nil
	}
	d.events.put(n)
	switch {
	case err != nil:
		return Pending{}, err
	case r == driver.ErrorCallRequiresNewerDriver:
		return d.beginWaitForStreams()
	}
	return Pending{}, r
}

// recordAll records an event behind all work of the device. No stream of it may be part of a
// capture, or become so meanwhile: the record would end that.
func (d *Device) recordAll(t *Tables, e driver.Event) (driver.Result, error) {
	d.recording.Lock()
	defer d.recording.Unlock()
	d.captures.mu.RLock()
	defer d.captures.mu.RUnlock()
	if d.captures.streams.Load() > 0 {
		return 0, d.capturing()
	}
	return t.Quiet.CtxRecordEvent(t.Context, e), nil
}

func (d *Device) capturing() error {
	return &Refusal{Err: ErrCapturing, Detail: "a stream of " + d.String() + " is being captured"}
}

// beginWaitForStreams is BeginWait for drivers that have no event for all work of a device:
// it waits for each stream. cuCtxSynchronize would end captures that begin meanwhile.
func (d *Device) beginWaitForStreams() (Pending, error) {
	d.recording.Lock() // one after the other: the default stream takes a thread
	defer d.recording.Unlock()
	g := &group{}
	for _, s := range d.list() {
		err := s.enterUncaptured()
		if errors.Is(err, ErrClosed) {
			continue
		}
		var m *Mark
		if err == nil {
			m, err = s.markHere()
			s.leave()
		}
		if err != nil {
			g.EndWait()
			return Pending{}, err
		}
		g.marks = append(g.marks, m)
	}
	return Pending{point: g, dev: d, spin: true, flush: new(flushes)}, nil
}

// group is marks of several streams, which are done when all are.
type group struct {
	marks []*Mark
	done  atomic.Int64 // so many are
}

func (g *group) Poll() (done bool, err error) {
	for i := g.done.Load(); i < int64(len(g.marks)); i++ {
		if done, err := g.marks[i].Poll(); !done || err != nil {
			return false, err
		}
		g.done.Store(i + 1)
	}
	return true, nil
}

func (g *group) Place() (queue any, first, last uint64) { return nil, 0, 0 }

func (g *group) EndWait() {
	for _, m := range g.marks {
		m.EndWait()
	}
}

// sleepFor lets a poller sleep by a simulated driver's clock, and without a limit: that driver
// knows when any event will be done, whoever records it.
func sleepFor(sleep func(events []driver.Event, limit time.Duration, wake <-chan struct{})) func([]wait.Point, time.Duration, <-chan struct{}) {
	return func(points []wait.Point, _ time.Duration, wake <-chan struct{}) {
		var events []driver.Event
		for _, p := range points {
			switch p := p.(type) {
			case *Mark:
				events = append(events, p.event)
			case *group:
				for _, m := range p.marks {
					events = append(events, m.event)
				}
			}
		}
		sleep(events, 0, wake)
	}
}
