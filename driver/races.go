package driver

import (
	"sync"
	"unsafe"
)

// Races connects a table that looks for races, operations that use the same memory and that
// nothing orders, with the user of the table. A table that has one sets Uses.
type Races struct {
	// Uses is told what memory the launches with these parameters use, from now
	// until done is called.
	Uses func(params unsafe.Pointer, memory []Use) (done func())

	mu    sync.Mutex
	found []string
	on    func(report string)
}

// Use is bytes of memory that a kernel gets.
type Use struct {
	At    DevicePtr
	Bytes uint64
	Kind  UseKind
}

// UseKind is how a kernel uses memory.
type UseKind uint8

const (
	UseWrites  UseKind = iota // or reads and writes
	UseReads                  // it only reads
	UseAtomics                // it changes words atomically, as others may do at the same time
)

// mostFound is how many reports wait for Take.
const mostFound = 100

// Found is called with a report. The caller holds no lock.
func (r *Races) Found(report string) {
	r.mu.Lock()
	on := r.on
	if on == nil && len(r.found) < mostFound {
		r.found = append(r.found, report)
	}
	r.mu.Unlock()
	if on != nil {
		done := make(chan struct{})
		go func() { // which it may end, as t.FailNow does
			defer close(done)
			on(report)
		}()
		<-done
	}
}

// On has f called with the reports from now on, on a goroutine of its own, which the call that
// found the race waits for; with nil, they wait for Take again. A nil *Races has none.
func (r *Races) On(f func(report string)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = f
}

// Take returns the reports since it was called last. A nil *Races has none.
func (r *Races) Take() []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.found
	r.found = nil
	return found
}
