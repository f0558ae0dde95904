package native

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
)

// exporter is another process whose events are open here. It is watched.
type exporter struct {
	process driver.Process
	dying   atomic.Bool
	watch   sync.Once // by the first user
	stop    func()    // nil if that failed, by err
	err     error
	users   int // guarded by the mutex of sharing
}

// watchExporter begins to watch p, unless it is being watched.
func (d *Driver) watchExporter(p driver.Process) (*exporter, error) {
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
	e.watch.Do(func() { e.stop, e.err = d.Processes().Watch(p, func() { e.die(d) }, func() {}) })
	if e.err != nil {
		e.release(d)
		return nil, ProcessError(e.err)
	}
	return e, nil
}

// die is called when the process begins to end.
func (e *exporter) die(d *Driver) {
	e.dying.Store(true)
	for _, v := range d.devices {
		v.Poller.Wake()
	}
}

// release ends one use of e, which may be nil.
func (e *exporter) release(d *Driver) {
	if e == nil {
		return
	}
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

// orphaned reports whether s is an event of a process that is gone, so that it may never be
// done.
func (s *share) orphaned() bool {
	return s != nil && s.exporter != nil && s.exporter.dying.Load()
}

var errOrphaned = &Refusal{Err: ErrPeerGone, Detail: "the process that exported the event died before the event was done"}

// Processes returns what knows about the processes that share the devices.
func (d *Driver) Processes() *driver.Processes {
	if p := d.API.Processes; p != nil {
		return p
	}
	return proc.Processes
}

// ProcessError says what an error of Processes means.
func ProcessError(err error) error {
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &Refusal{Err: ErrPeerGone, Detail: err.Error()}
}
