package cudatest

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// identity returns who a new process is.
func (g *GPU) identity(p *Process) driver.Process {
	id := driver.Process{PID: p.conf.PID, Start: uint64(100 * (p.num + 1)), Namespace: p.conf.Namespace}
	copy(id.Boot[:], "simulated") // and the number of the GPU, and of the program that has it
	binary.BigEndian.PutUint32(id.Boot[8:], uint32(g.serial))
	id.Boot[8] = 'd'
	binary.BigEndian.PutUint32(id.Boot[12:], uint32(os.Getpid()))
	switch {
	case id.PID < 0:
		panic(fmt.Sprintf("cudatest: a process with the PID %d", id.PID))
	case id.PID > 0 && g.living(id.PID, id.Namespace) != nil:
		panic(fmt.Sprintf("cudatest: a process with the PID %d, which a living process of the namespace %d has", id.PID, id.Namespace))
	}
	for id.PID == 0 {
		g.lastPID++
		if !slices.ContainsFunc(g.procs, func(other *Process) bool { return other.id.PID == g.lastPID }) {
			id.PID = g.lastPID
		}
	}
	return id
}

// living returns the process that has a number in a namespace now, dying or not; nil
// if there is none.
func (g *GPU) living(pid int, namespace uint64) *Process {
	for _, p := range g.procs {
		if !p.dead && p.id.PID == pid && p.id.Namespace == namespace {
			return p
		}
	}
	return nil
}

// findProcess finds no dying process, as the real thing does not.
func (p *Process) findProcess(pid int) (driver.Process, error) {
	if pid == 0 || pid == p.id.PID {
		return p.id, nil
	}
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	found := p.gpu.living(pid, p.id.Namespace)
	if found == nil || found.dying {
		return driver.Process{}, fmt.Errorf("find process %d: %w", pid, fs.ErrNotExist)
	}
	return found.id, nil
}

// watch is one call of Watch.
type watch struct {
	dying, gone func()

	mu      sync.Mutex // held while one of them runs
	began   bool       // dying was called
	stopped bool       // neither is called any more
}

// watchProcess never calls anything of a process that watches itself: it could not run.
func (p *Process) watchProcess(id driver.Process, dying, gone func()) (stop func(), err error) {
	if id == p.id {
		return func() {}, nil
	}
	g := p.gpu
	w := &watch{dying: dying, gone: gone}
	g.mu.Lock()
	watched := g.living(id.PID, p.id.Namespace)
	if watched == nil || watched.id != id {
		g.mu.Unlock()
		return nil, fmt.Errorf("watch process %d: it is gone, or not of this machine and PID namespace: %w", id.PID, fs.ErrNotExist)
	}
	watched.watches[w] = true
	begun := watched.dying
	g.mu.Unlock()
	if begun {
		w.tell(false)
	}
	return func() {
		g.mu.Lock()
		delete(watched.watches, w)
		g.mu.Unlock()
		w.mu.Lock() // waits for a function that runs
		defer w.mu.Unlock()
		w.stopped = true
	}, nil
}

// tell says that the process is dying, or gone, unless it was said already. The
// caller does not hold the GPU's mutex: the functions may call the driver.
func (w *watch) tell(gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began && !w.stopped {
		w.began = true
		w.dying()
	}
	if gone && !w.stopped {
		w.stopped = true
		w.gone()
	}
}
