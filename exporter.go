package cuda

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
)

// FindProcess returns the identity of the process with a number, 0 for this process
// itself. With it, a [Token] can be made for a handle that came from a program which
// does not use this package, so that its death is noticed. If there is no such process
// the error matches [ErrPeerGone]; where the platform does not tell, which is
// everywhere but on linux, errors.ErrUnsupported.
func (d *Driver) FindProcess(pid int) (driver.Process, error) {
	const op = "process find"
	if err := d.usable(op); err != nil {
		return driver.Process{}, err
	}
	p, err := d.processes().Find(pid)
	return p, processError(op, err)
}

// processes returns what knows about the processes that share the devices.
func (d *Driver) processes() *driver.Processes {
	if p := d.api.Processes; p != nil {
		return p
	}
	return proc.Processes
}

func processError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Op: op, Err: ErrPeerGone, Detail: err.Error()}
	}
	return &Error{Op: op, Err: err}
}

// exporter is another process whose events are open here. It is watched.
type exporter struct {
	process driver.Process
	dying   atomic.Bool
	watch   sync.Once // by the first user
	stop    func()    // nil if that failed, by err
	err     error
	users   int // guarded by the mutex of sharing
}

// watchExporter begins to watch p, or joins those who do.
func (d *Driver) watchExporter(op string, p driver.Process) (*exporter, error) {
	x := &d.sharing
	x.mu.Lock()
	e := x.exporters[p]
	if e == nil {
		e = &exporter{process: p}
		if x.exporters == nil {
			x.exporters = map[driver.Process]*exporter{}
		}
		x.exporters[p] = e
	}
	e.users++
	x.mu.Unlock()
	e.watch.Do(func() { e.stop, e.err = d.processes().Watch(p, func() { e.die(d) }, func() {}) })
	if e.err != nil {
		e.release(d)
		return nil, processError(op, e.err)
	}
	return e, nil
}

// die is called when the process begins to end.
func (e *exporter) die(d *Driver) {
	e.dying.Store(true)
	for i := range d.watchers {
		d.watchers[i].lookAgain()
	}
}

// lookAgain has the watcher ask again now.
func (x *watcher) lookAgain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.running {
		x.alarm.ring(!x.until.IsZero())
	}
}

func (e *exporter) release(d *Driver) {
	x := &d.sharing
	x.mu.Lock()
	e.users--
	last := e.users == 0
	if last {
		delete(x.exporters, e.process)
	}
	x.mu.Unlock()
	if last && e.stop != nil {
		e.stop()
	}
}

// orphaned reports whether h is an event of a process that is gone, so that it may
// never be done.
func (h *handle) orphaned() bool {
	return h.shared != nil && h.shared.exporter != nil && h.shared.exporter.dying.Load()
}

func peerGone(op string) error {
	return &Error{Op: op, Err: ErrPeerGone, Detail: "the process that exported the event died before the event was done"}
}
