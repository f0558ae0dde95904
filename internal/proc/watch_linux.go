package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Watch has dying called when p begins to end, and gone when nothing of it is left;
// see [driver.Processes]. A process that already is dying can be watched, one that is
// gone cannot. Watching this process is allowed, and nothing is ever called.
//
// A process of another PID namespace can be watched if that is below this process's,
// with the permissions of a debugger; otherwise the error matches errors.ErrUnsupported, and says
// nothing about the process. So does a call in a testing/synctest bubble, whose
// time does not pass while processes run. stop may be called there.
func Watch(p driver.Process, dying, gone func()) (stop func(), err error) {
	return watches.watch(p, dying, gone)
}

var watches watcher

// watcher watches processes. The kernel tells when one is gone, through Go's network
// poller, which takes a goroutine but neither a thread nor a timer. It does not tell
// when one begins to end. That takes a while, since the kernel closes a process's GPU contexts
// first: so one goroutine for all looks every few milliseconds.
type watcher struct {
	noPidfd bool // as if there were none

	mu        sync.Mutex
	processes map[driver.Process]*watched
	looking   bool
}

// watched is a process that is watched.
type watched struct {
	id    driver.Process
	pid   int      // its number here
	stat  *os.File // its statistics
	pidfd *os.File // nil if looking must do

	// with the watcher's mutex
	stage   stage
	watches map[*watch]bool
	pending []*watch // those that may have to be told something
	telling bool
}

// watch is one call of Watch.
type watch struct {
	dying, gone func()

	// with the watcher's mutex
	told    stage
	stopped bool
	calling chan struct{} // closed when the call that is under way returns; nil if none is
}

// interval is how long it may take to notice that a process ends. In an idle
// program, measured on a virtual machine with two processors, waking up takes 110 µs of
// processor time each time, and looking 10 to 15 µs per process: 1.5 % of a processor
// for one, 5 % for 20.
const interval = 10 * time.Millisecond

func (w *watcher) watch(p driver.Process, dying, gone func()) (stop func(), err error) {
	own, err := self()
	switch {
	case err != nil:
		return nil, err
	case p == own:
		return func() {}, nil
	case p.Boot != own.Boot:
		return nil, notFound(fmt.Sprintf("process %d ran before the machine was started again, or on another", p.PID))
	case inBubble():
		return nil, fmt.Errorf("watch process %d in a testing/synctest bubble: %w", p.PID, errors.ErrUnsupported)
	}

	x := &watch{dying: dying, gone: gone}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.processes[p]
	if q == nil {
		w.mu.Unlock()
		opened, err := w.open(p, own)
		w.mu.Lock()
		if err != nil {
			return nil, err
		}
		if q = w.processes[p]; q != nil { // somebody else was faster
			opened.close()
		} else {
			q = opened
			w.enter(q)
		}
	}
	q.watches[x] = true
	if q.stage != alive {
		go w.reached(q, q.stage, x)
	}
	return func() { w.stop(q, x) }, nil
}

// open gets what it takes to watch p.
func (w *watcher) open(p, own driver.Process) (*watched, error) {
	pid, err := numberHere(p, own)
	if err != nil {
		return nil, err
	}
	q := &watched{id: p, pid: pid, watches: make(map[*watch]bool)}
	if !w.noPidfd {
		q.pidfd = openPidfd(pid)
	}
	// Both files are of p if the later one is.
	if q.stat, err = open(pid); err != nil {
		q.close()
		if vanished(err) {
			return nil, noProcess(pid)
		}
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	start, far, err := look(pid, q.stat)
	switch {
	case err != nil:
		err = fmt.Errorf("watch process %d: %w", pid, err)
	case start != p.Start:
		err = notFound(fmt.Sprintf("there is no process %d any more: another has its number", pid))
	case far == gone:
		err = notFound(fmt.Sprintf("process %d has ended", pid))
	default:
		q.stage = far
		return q, nil
	}
	q.close()
	return nil, err
}

func (q *watched) close() {
	_ = q.stat.Close()
	_ = q.pidfd.Close()
}

// enter begins to watch q. The mutex is held.
func (w *watcher) enter(q *watched) {
	if w.processes == nil {
		w.processes = make(map[driver.Process]*watched)
	}
	w.processes[q.id] = q
	if q.pidfd != nil {
		go func() {
			if await(q.pidfd) == nil {
				w.reached(q, gone)
			}
		}()
	}
	if !w.looking {
		w.looking = true
		go w.look()
	}
}

// leave is the reverse of enter. The mutex is held.
func (w *watcher) leave(q *watched) {
	if w.processes[q.id] == q {
		delete(w.processes, q.id)
		q.close()
	}
}

// look looks at all processes until there are none.
func (w *watcher) look() {
	var list []*watched
	for {
		time.Sleep(interval)
		list = list[:0]
		w.mu.Lock()
		if len(w.processes) == 0 {
			w.looking = false
			w.mu.Unlock()
			return
		}
		for _, q := range w.processes {
			list = append(list, q)
		}
		w.mu.Unlock()
		for _, q := range list {
			if _, far, _ := look(q.pid, q.stat); far != alive {
				w.reached(q, far)
			}
		}
	}
}

// reached notes how far q is, and tells those who watch it, and those who came since.
func (w *watcher) reached(q *watched, far stage, late ...*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.pending = append(q.pending, late...)
	if far > q.stage {
		q.stage = far
		for x := range q.watches {
			q.pending = append(q.pending, x)
		}
	}
	if q.stage == gone {
		w.leave(q)
	}
	if q.telling {
		return // whoever tells goes on with these
	}
	q.telling = true
	for len(q.pending) > 0 {
		x := q.pending[0]
		q.pending = q.pending[1:]
		w.tell(q, x)
	}
	q.telling = false
}

// tell tells x what it does not know yet. The mutex is held, but not during the
// calls.
func (w *watcher) tell(q *watched, x *watch) {
	for x.told < q.stage && !x.stopped {
		x.told++
		call := x.dying
		if x.told == gone {
			call = x.gone
		}
		done := make(chan struct{})
		x.calling = done
		w.mu.Unlock()
		call()
		w.mu.Lock()
		x.calling = nil
		close(done)
	}
}

// stop ends x.
func (w *watcher) stop(q *watched, x *watch) {
	w.mu.Lock()
	x.stopped = true
	delete(q.watches, x)
	if len(q.watches) == 0 {
		w.leave(q)
	}
	calling := x.calling
	w.mu.Unlock()
	if calling != nil {
		<-calling
	}
}

// inBubble reports whether the caller is in a testing/synctest bubble: the clock
// there is not the system's.
func inBubble() bool {
	var system syscall.Timeval
	if syscall.Gettimeofday(&system) != nil {
		return false
	}
	return time.Since(time.Unix(system.Unix())).Abs() > time.Hour
}
