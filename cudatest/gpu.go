package cudatest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
	"github.com/purecuda/cuda/internal/races"
)

// GPU is a machine with simulated GPUs and their driver, as the processes on it
// see them. Its methods may be called from any goroutine.
//
// A GPU that is used in a synctest bubble must be made in that bubble.
type GPU struct {
	conf   Config
	serial uint64 // tells the GPUs of a program apart
	epoch  time.Time
	main   *Process

	mu sync.Mutex // guards everything below and all that hangs on it
	timeline
	polling bool          // a waiter looks at the words of the armed valueOps
	polled  chan struct{} // closed when that waiter has stopped
	alarm   *time.Timer   // for effects that the CPU can see without asking
	alarmAt int64         // when it goes off; never if it is not set
	devices []*device
	procs   []*Process // the dead ones too
	lastPID int        // that was given out
	streams uint64     // handles given out, of all processes
	events  uint64
	graphs  uint64
	execs   uint64
	modules uint64
	funcs   uint64
	ipc     uint64
	exports map[uint64]any // *event or *block, by the number in their IPC handles
	kernels map[string]Kernel
	order   order.Tracker
	blocked int // calls that wait for room in a launch queue
	races   races.Reports
}

// device is a simulated device, which the processes share.
type device struct {
	ordinal int
	used    uint64 // bytes of memory
	next    uint64 // the next free address
}

// deviceLimit is how many devices' memories fit in the range of addresses.
const deviceLimit = 64

// Device memory has addresses that no process can have, so that following one on
// the CPU crashes at once. Addresses are not reused.
const (
	memoryBase  = 1 << 52
	memoryRange = 1 << 44 // per device
)

var gpus atomic.Uint64

// New returns a simulated machine.
func New(c Config) *GPU {
	g := &GPU{
		conf:    c.withDefaults(),
		serial:  gpus.Add(1),
		epoch:   time.Now(),
		exports: map[uint64]any{},
		alarmAt: never,
		lastPID: firstPID - 1,
	}
	g.bubble = inBubble(g.epoch)
	g.kernels = builtins(&g.conf)
	for i := range g.conf.Devices {
		g.devices = append(g.devices, &device{ordinal: i, next: memoryBase + uint64(i)*memoryRange})
	}
	g.main = g.NewProcess()
	return g
}

// handle returns the n-th handle of a kind. Other GPUs of the program have other
// handles, so that mixing them up shows.
func (g *GPU) handle(base, step, n uint64) uint64 { return base + g.serial%256<<32 + n*step }

// API returns the table of the GPU's driver, as the first process sees it. All
// its fields are set. The same table is returned each time; to replace fields,
// copy it.
func (g *GPU) API() *driver.API { return g.main.API() }

// String names the GPU and says that it is simulated.
func (g *GPU) String() string {
	return fmt.Sprintf("simulated GPU (%d × %s)", g.conf.Devices, g.conf.Name)
}
