package cudatest

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Process is a simulated process: its own handles, contexts and memory on the
// GPUs that it shares with the other processes of the machine. Handles of one
// process mean nothing to another; see the functions of the table that begin
// with IPC. The table's Processes tell who else there is, and when a process ends.
type Process struct {
	gpu     *GPU
	api     *driver.API
	conf    ProcessConfig
	num     int // among all processes of the machine
	id      driver.Process
	visited atomic.Int64 // captures and visits; without any, there are no visits
	linger  func(*visit) // called in each visit
	devices []*device    // that it sees, in its own order

	// The GPU's mutex guards the rest.
	initialized bool
	dying       bool               // its own code has come to its end
	dead        bool               // and its work on the devices too
	watches     map[*watch]bool    // by those who want to hear of that
	contexts    []*context         // by ordinal; nil while there is none
	threads     map[uint64]*thread // threads with a context or a capture mode
	streams     map[driver.Stream]*stream
	events      map[driver.Event]*event
	graphs      map[driver.Graph]*graph
	execs       map[driver.GraphExec]*graphExec
	modules     map[driver.Module]*module
	funcs       map[driver.Func]*function
	hosts       map[uint64]bool // threads that run host functions
	blocks      []*block        // memory, by address
	pools       map[*device]*pool
	captures    []*capture
	captured    uint64 // captures begun
	visits      []*visit
	misuses     misuseLog
}

// API returns the process's table of driver functions.
func (p *Process) API() *driver.API { return p.api }

// BeginKill is the first part of [Process.Kill]: the process's own code ends. All of
// its table's functions answer DEINITIALIZED from now on, its host functions are not
// called any more, and those who watch it hear that it is dying. Its memory and what
// it has enqueued stay as they are, and that work goes on, until Kill: after a signal,
// a real process's work goes on for some milliseconds, and it is gone only some
// hundred milliseconds later.
func (p *Process) BeginKill() {
	g := p.gpu
	g.mu.Lock()
	if !p.dying {
		g.advance()
		p.dying = true
		g.broadcast()
	}
	watches := slices.Collect(maps.Keys(p.watches))
	g.mu.Unlock()
	for _, w := range watches {
		w.tell(false)
	}
}

// Kill ends the process as a signal does, all at once; [Process.BeginKill] separates
// the two parts that this has on a real machine. Its unfinished work never finishes,
// nor does what waits for it in other processes: their queries answer NOT_READY
// and their synchronizing calls block, for good. All of its table's functions
// answer DEINITIALIZED from then on. Its events can still be opened, and its memory
// stays for those who have it open. When Kill returns, those who watch the process
// have heard that it is gone.
func (p *Process) Kill() {
	p.BeginKill()
	g := p.gpu
	g.mu.Lock()
	watches := slices.Collect(maps.Keys(p.watches))
	p.die()
	g.mu.Unlock()
	for _, w := range watches {
		w.tell(true)
	}
}

// die takes everything from a dying process.
func (p *Process) die() {
	if p.dead {
		return
	}
	p.gpu.advance()
	p.dead = true
	for _, c := range p.contexts {
		if c != nil { // nothing of it happens any more; what it waited for counts as done too
			p.gpu.order.HostWaited(c.end())
		}
	}
	p.gpu.strand()
	for _, b := range p.blocks {
		b.release()
	}
	for d := range p.pools {
		p.dropPool(d)
	}
	p.blocks, p.threads, p.captures, p.watches = nil, nil, nil, nil
	clear(p.streams)
	clear(p.events)
	clear(p.graphs)
	clear(p.execs)
	clear(p.modules)
	clear(p.funcs)
}

// ready answers for calls that come before Init, after the process's end, or from
// a host function.
func (p *Process) ready() driver.Result { return p.readyTo("") }

func (p *Process) initialize(flags uint32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	switch {
	case p.dying:
		return driver.ErrorDeinitialized
	case flags != 0:
		return driver.ErrorInvalidValue
	case len(p.devices) == 0:
		return driver.ErrorNoDevice
	}
	p.initialized = true
	return driver.Success
}

func (p *Process) driverGetVersion() (int32, driver.Result) {
	return int32(p.gpu.conf.DriverVersion), driver.Success
}
