package cudatest

import (
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/order"
	"github.com/purecuda/cuda/internal/races"
)

// opKind says how an operation's finish time comes about.
type opKind uint8

const (
	workOp  opKind = iota // takes its duration
	holdOp                // ends when released
	valueOp               // ends when a word in memory has a value
	faultOp               // breaks its context
	hostOp                // ends when a function of the host has returned
)

// opState says what is known of an operation.
type opState uint8

const (
	unknown opState = iota // the finish time hangs on a hold, a word in memory, the host or a dead process
	known                  // the finish time is known: the op stands in the heap
	done
)

// op is one operation on the timeline. Times are nanoseconds since the GPU's
// epoch. Once done, an op refers to nothing but its context.
type op struct {
	ctx    *context
	seq    uint64 // order of submission: an op comes after what it depends on
	dur    int64
	start  int64 // as far as the predecessors' finish times are known
	finish int64

	what    string // its kind as a node of a graph: "memcpy", "memset", "kernel" or "host"
	at      order.Point
	task    *races.Task // for reports; nil if it uses no memory
	kind    opKind
	state   opState
	stuck   bool            // never finishes: it hangs on work of a dead process
	gate    *gate           // of a holdOp
	armed   bool            // of a valueOp: it looks at its word; of a hostOp: its turn has come
	code    driver.Result   // of a faultOp
	flags   uint32          // of a valueOp: how to compare
	value   uint32          // of a valueOp
	word    *uint32         // of a valueOp
	waits   use             // of a valueOp: for the word
	host    driver.HostFunc // of a hostOp
	visible bool            // the CPU can see its effect without asking the driver

	unknowns int   // predecessors whose finish time is unknown
	preds    []*op // predecessors that were not done at submission
	predBuf  [2]*op
	succs    []*op // those to tell when the finish time becomes known

	effect func() []use  // applied at the finish; it returns what memory was used
	notify chan struct{} // closed when the finish becomes known; made by a waiter
	slept  bool          // sleepers want to hear when the finish becomes known
}

// gate is what a hold waits for: its release. In a graph it is one for all
// launches.
type gate struct {
	open    bool
	waiting []*op // holds that have come to it
}

// anew returns an operation like o, which is a graph's and never submitted.
func (o *op) anew() *op {
	again := *o
	return &again
}

// pending reports whether there is an operation that is not done.
func (o *op) pending() bool { return o != nil && o.state != done }

// satisfied compares the word of a valueOp. The CPU may store to it meanwhile.
func (o *op) satisfied() bool {
	v := atomic.LoadUint32(o.word)
	switch o.flags {
	case driver.StreamWaitValueGEQ:
		return int32(v-o.value) >= 0
	case driver.StreamWaitValueEQ:
		return v == o.value
	case driver.StreamWaitValueAND:
		return v&o.value != 0
	default: // StreamWaitValueNOR
		return ^(v | o.value) != 0
	}
}

// word32 returns the word at the beginning of b, which must be aligned.
func word32(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }

// pendingOps is a heap of the ops with a known finish that are not done, and of
// the valueOps and hostOps whose turn has not come.
type pendingOps []*op

func (h pendingOps) Len() int { return len(h) }
func (h pendingOps) Less(i, j int) bool {
	if h[i].finish != h[j].finish {
		return h[i].finish < h[j].finish
	}
	return h[i].seq < h[j].seq // dependencies first
}
func (h pendingOps) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *pendingOps) Push(x any)   { *h = append(*h, x.(*op)) }
func (h *pendingOps) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}
