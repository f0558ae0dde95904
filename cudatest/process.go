package cudatest

import (
	"github.com/purecuda/cuda/driver"
)

// Process is a simulated process: its own handles, contexts and memory on the
// GPUs that it shares with the other processes of the machine. Handles of one
// process mean nothing to another; see the functions of the table that begin
// with IPC.
type Process struct {
	gpu *GPU
	api *driver.API
	num int

	// The GPU's mutex guards the rest.
	initialized bool
	dead        bool
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
	misuses     misuseLog
}

// NewProcess returns another process on the machine. What [GPU.API] returns is
// the table of the first one.
func (g *GPU) NewProcess() *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &Process{
		gpu:      g,
		num:      len(g.procs),
		contexts: make([]*context, len(g.devices)),
		threads:  map[uint64]*thread{},
		streams:  map[driver.Stream]*stream{},
		events:   map[driver.Event]*event{},
		graphs:   map[driver.Graph]*graph{},
		execs:    map[driver.GraphExec]*graphExec{},
		modules:  map[driver.Module]*module{},
		funcs:    map[driver.Func]*function{},
		hosts:    map[uint64]bool{},
		pools:    map[*device]*pool{},
	}
	p.api = p.table()
	g.procs = append(g.procs, p)
	return p
}

// API returns the process's table of driver functions.
func (p *Process) API() *driver.API { return p.api }

// Kill ends the process as a signal does. Its unfinished work never finishes,
// nor does what waits for it in other processes: their queries answer NOT_READY
// and their synchronizing calls block, for good. All of its table's functions
// answer DEINITIALIZED from then on.
func (p *Process) Kill() {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.dead {
		return
	}
	g.advance()
	p.dead = true
	g.strand()
	for _, b := range p.blocks {
		b.release()
	}
	for d := range p.pools {
		p.dropPool(d)
	}
	for _, e := range p.events {
		e.unexport()
	}
	p.blocks, p.threads, p.captures = nil, nil, nil
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
	case p.dead:
		return driver.ErrorDeinitialized
	case flags != 0:
		return driver.ErrorInvalidValue
	case len(p.contexts) == 0:
		return driver.ErrorNoDevice
	}
	p.initialized = true
	return driver.Success
}

func (p *Process) driverGetVersion() (int32, driver.Result) {
	return int32(p.gpu.conf.DriverVersion), driver.Success
}
