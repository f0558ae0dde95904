package cudatest

import (
	"fmt"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// ProcessConfig describes a simulated process. The zero value is one like the
// first: it sees all devices and shares everything with the others.
type ProcessConfig struct {
	// Devices are the machine's devices that the process sees, in its own order, as
	// the environment's CUDA_VISIBLE_DEVICES has it: with {1, 0} its device 0 is the
	// machine's device 1. Nil means all; an empty list none, so that Init answers
	// NO_DEVICE.
	Devices []int

	// Namespace is the process's PID namespace; zero means the machine's own, which
	// is 1. Processes find and watch those of the same one only; none is below another. Sharing events and
	// memory does not depend on it.
	Namespace uint64

	// PID is the process's number in its namespace; zero means the next that no
	// process has had. A dead process's number can be given out again, as a system
	// does after some time.
	PID int

	// OtherUser makes the process one of another user, or of a container with
	// another /dev/shm: it cannot open events of processes without OtherUser, nor
	// they its events (MAP_FAILED). Memory can be opened all the same.
	OtherUser bool
}

// The identities of processes begin with these.
const (
	firstPID       = 1001
	firstNamespace = 1
)

// NewProcess returns another process on the machine. What [GPU.API] returns is
// the table of the first one.
func (g *GPU) NewProcess() *Process { return g.NewProcessWith(ProcessConfig{}) }

// NewProcessWith is [GPU.NewProcess] for a process that differs from the first. It
// panics if there is no such device, if one is named twice, or if the PID is that of
// another living process of the namespace.
func (g *GPU) NewProcessWith(c ProcessConfig) *Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.Devices = slices.Clone(c.Devices)
	if c.Namespace == 0 {
		c.Namespace = firstNamespace
	}
	p := &Process{
		gpu:     g,
		conf:    c,
		num:     len(g.procs),
		devices: g.chosen(c.Devices),
		watches: map[*watch]bool{},
		threads: map[uint64]*thread{},
		streams: map[driver.Stream]*stream{},
		events:  map[driver.Event]*event{},
		graphs:  map[driver.Graph]*graph{},
		execs:   map[driver.GraphExec]*graphExec{},
		modules: map[driver.Module]*module{},
		funcs:   map[driver.Func]*function{},
		hosts:   map[uint64]bool{},
		pools:   map[*device]*pool{},
		linger:  (*visit).linger,
	}
	p.contexts = make([]*context, len(p.devices))
	p.id = g.identity(p)
	p.api = p.table()
	g.procs = append(g.procs, p)
	return p
}

// chosen returns the devices with these ordinals; nil stands for all.
func (g *GPU) chosen(ordinals []int) (chosen []*device) {
	if ordinals == nil {
		return g.devices
	}
	for _, i := range ordinals {
		switch {
		case i < 0 || i >= len(g.devices):
			panic(fmt.Sprintf("cudatest: a process that sees device %d: the machine has %d, counted from 0", i, len(g.devices)))
		case slices.Contains(chosen, g.devices[i]):
			panic(fmt.Sprintf("cudatest: a process that sees device %d twice", i))
		}
		chosen = append(chosen, g.devices[i])
	}
	return chosen
}
