// Package races finds operations that use the same memory and that nothing orders, by wrapping
// a driver's table: it sees what is enqueued, and what the host waits for.
//
// It goes by what orders operations, not by when they ran, and says nothing where it cannot
// know the order: what other libraries enqueue, other processes do, and the CPU writes into
// memory that streams wait for, it does not see.
package races

import (
	"fmt"
	"slices"
	"sync"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// detector is the state of a wrapped table. A call that enqueues holds its stream's turn, so
// that operations are noted in the order in which the driver has them; it does not hold mu
// while it is in the driver, which may block it.
type detector struct {
	api   driver.API // the functions that are wrapped
	races *driver.Races

	mu       sync.Mutex
	order    order.Tracker
	reports  Reports
	found    []string // reports to give out when mu is free
	contexts map[driver.Context]*context
	streams  map[driver.Stream]*stream
	events   map[driver.Event]*event
	memory
	graphs
	words
	candidates []candidate
}

// Detect returns a table with the functions of api that reports races to the Races of the
// table. If api lacks a function, it is returned as it is.
func Detect(api *driver.API) *driver.API {
	own := *api
	if own.Complete() != nil {
		return api
	}
	d := &detector{
		api:      own,
		races:    new(driver.Races),
		contexts: map[driver.Context]*context{},
		streams:  map[driver.Stream]*stream{},
		events:   map[driver.Event]*event{},
	}
	own.Races = d.races
	d.wrapStreams(&own)
	d.wrapEvents(&own)
	d.wrapMemory(&own)
	d.wrapCopies(&own)
	d.wrapWords(&own)
	d.wrapKernels(&own)
	d.wrapHostFuncs(&own)
	d.wrapGraphs(&own)
	return &own
}

// unlock frees mu and gives out the reports.
func (d *detector) unlock() {
	found := d.found
	d.found = nil
	d.mu.Unlock()
	for _, f := range found {
		d.races.Found(f)
	}
}

// operation is what is put on a stream, or becomes a node of a graph.
type operation struct {
	task *Task // nil: it uses no memory
	uses []use
	// run, unless nil, puts it on a sequence, which Next does otherwise.
	run  func(s *order.Sequence) order.Point
	host *hostFunc // what it calls
}

// on notes that o is put on a sequence.
func (o *operation) on(d *detector, s *order.Sequence, task *Task) order.Point {
	var at order.Point
	if o.run != nil {
		at = o.run(s)
	} else {
		at = s.Next()
	}
	for _, u := range o.uses {
		a := order.Access{From: u.from, To: u.to, Kind: u.kind, At: at, By: task}
		d.order.Access(&u.block.history, a, func(earlier order.Access, from, to uint64) (judged bool) {
			c := candidate{u.block, earlier, a, from, to, d.unsure(earlier.At), d.unsure(at)}
			if !c.unsureEarlier && !c.unsureLater {
				d.report(c)
				return true
			}
			if len(d.candidates) < mostCandidates {
				d.candidates = append(d.candidates, c)
			}
			return false
		})
		if u.kind == order.Write {
			u.block.forgetWords(u.from, u.to)
		}
		if u.kind == order.Atomic && u.block.host { // the CPU may look at it at any time
			d.hostWaited(at)
		}
	}
	return at
}

// candidate is two accesses that are a race unless something orders them that is not known yet.
type candidate struct {
	block          *block
	earlier, later order.Access
	from, to       uint64
	// behind an open wait:
	unsureEarlier, unsureLater bool
}

// mostCandidates is how many are kept.
const mostCandidates = 1024

func (d *detector) report(c candidate) {
	if report := d.reports.Add(c.block.made, c.earlier, c.later, c.from, c.to); report != "" {
		d.found = append(d.found, report)
	}
}

// settle looks at the candidates when more is known of what ends the waits before them. What
// the host knows by then to be done, it may have known before it ended the wait.
func (d *detector) settle() {
	d.candidates = slices.DeleteFunc(d.candidates, func(c candidate) bool {
		switch {
		case d.order.Before(c.earlier.At, c.later.At) || d.order.Before(c.later.At, c.earlier.At),
			c.unsureLater && d.order.Waited(c.earlier.At) || c.unsureEarlier && d.order.Waited(c.later.At):
			return true
		case d.unsure(c.earlier.At) || d.unsure(c.later.At):
			return false
		}
		d.report(c)
		return true
	})
}

// hostWaited notes that the host knows that p was reached.
func (d *detector) hostWaited(p order.Point) {
	d.order.HostWaited(p)
	d.settle()
}

// enqueue has the driver put o on a stream, and notes it.
func (d *detector) enqueue(h driver.Stream, what string, uses []use, call func() driver.Result) driver.Result {
	s := d.stream(h)
	o := &operation{task: &Task{What: what, Stream: s, At: callsite.Caller()}, uses: uses}
	return d.put(s, o, call)
}

func (d *detector) put(s *stream, o *operation, call func() driver.Result) driver.Result {
	s.turn.Lock()
	defer s.turn.Unlock()
	r := call()
	if r == driver.Success {
		d.mu.Lock()
		defer d.unlock()
		d.noted(s, o)
	}
	return r
}

// putEarly is put for what may be done, or block the caller until it is, before the driver has
// answered: it is noted first.
func (d *detector) putEarly(s *stream, o *operation, call func() driver.Result) driver.Result {
	s.turn.Lock()
	d.mu.Lock()
	d.noted(s, o)
	d.unlock()
	s.turn.Unlock()
	r := call()
	if r != driver.Success {
		d.mu.Lock()
		defer d.mu.Unlock()
		o.task.Refused = true
	}
	return r
}

// noted notes that o is on s, or in the capture of s.
func (d *detector) noted(s *stream, o *operation) {
	if s.capture != nil {
		s.capture.add(s, o)
		return
	}
	s.follow()
	o.on(d, s.sequence, o.task)
}

// String names a stream by where it was made.
func (s *stream) String() string {
	switch {
	case s.legacy:
		return fmt.Sprintf("default stream of device %d", s.ctx.ordinal)
	case s.made == (callsite.Site{}):
		return fmt.Sprintf("stream %#x", uintptr(s.handle))
	}
	return fmt.Sprintf("stream made at %v", s.made)
}
