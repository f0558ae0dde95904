package driver

import (
	"sync"
	"sync/atomic"
)

// HostFunc stands for a Go function where C wants the argument of a host
// function: a number, because C must not keep a Go pointer. It may be called any
// number of times, a graph with it being launched again and again, so whoever
// made it says when it is no longer needed.
type HostFunc uintptr

var hostFuncs struct {
	sync.Map // of func(), by HostFunc
	last     atomic.Uintptr
}

// NewHostFunc makes a HostFunc that calls f. A panic of f ends the process, as
// there is no Go caller to return it to.
func NewHostFunc(f func()) HostFunc {
	h := HostFunc(hostFuncs.last.Add(1))
	hostFuncs.Store(h, f)
	return h
}

// Call calls the function. Those who implement a table call it; it does nothing
// after Release.
func (h HostFunc) Call() {
	if f, ok := hostFuncs.Load(h); ok {
		f.(func())()
	}
}

// Release forgets the function.
func (h HostFunc) Release() { hostFuncs.Delete(h) }
