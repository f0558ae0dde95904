package main

// #include "driver.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// samples are those of a row, with a goroutine for each lane.
type samples struct {
	row     row
	lanes   []*lane
	n, nC   int // operations of each goroutine in a sample, and in C
	calls   []call
	time, c []float64
}

func newSamples(r row, lanes []*lane, n, nC int) (*samples, error) {
	s := &samples{row: r, lanes: lanes, n: n, nC: nC}
	for _, l := range lanes {
		s.calls = append(s.calls, r.calls(l)...)
	}
	// Once before it counts: what the driver does at the first time, and what fails.
	if _, err := s.goes(2); err != nil {
		return nil, err
	}
	_, err := s.inC(2)
	return s, err
}

// take adds a sample with cgo and one in C.
func (s *samples) take(cFirst bool) error {
	var x, y float64
	var err error
	if cFirst {
		y, err = s.inC(s.nC)
	}
	if err == nil {
		x, err = s.goes(s.n)
	}
	if err == nil && !cFirst {
		y, err = s.inC(s.nC)
	}
	if err == nil {
		s.time, s.c = append(s.time, x), append(s.c, y)
	}
	return err
}

func (s *samples) inC(n int) (float64, error) {
	calls, k := unsafe.Pointer(&s.calls[0]), C.int(len(s.calls)/len(s.lanes))
	var ns C.int64_t
	if len(s.lanes) == 1 {
		ns = C.loop_one(calls, k, C.int64_t(n))
	} else {
		ns = C.loop_threads(calls, k, C.int(len(s.lanes)), C.int64_t(n), s.lanes[0].context)
	}
	if ns < 0 {
		return 0, fmt.Errorf("the C loop failed with %d", -ns)
	}
	return float64(ns) / float64(n), check("cuCtxSynchronize", C.cuCtxSynchronize())
}

func (s *samples) goes(n int) (float64, error) {
	var r C.int
	var took time.Duration
	if len(s.lanes) == 1 {
		begin := time.Now()
		r = s.row.do(s.lanes[0], n)
		took = time.Since(begin)
	} else {
		took, r = s.together(n)
	}
	if err := check(s.row.id, r); err != nil {
		return 0, err
	}
	return float64(took) / float64(n), check("cuCtxSynchronize", C.cuCtxSynchronize())
}

// together lets each goroutine do n operations. It returns the time from the common
// begin to the end of the last.
func (s *samples) together(n int) (time.Duration, C.int) {
	var (
		arrived atomic.Int32
		begin   atomic.Pointer[time.Time]
		done    sync.WaitGroup
		ends    = make([]time.Time, len(s.lanes))
		results = make([]C.int, len(s.lanes))
	)
	for i, l := range s.lanes {
		done.Go(func() {
			// To create a stream or an event, the driver wants a context.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			r := C.cuCtxSetCurrent(l.context)
			if r == 0 {
				r = s.row.do(l, 1)
			}
			if int(arrived.Add(1)) == len(s.lanes) {
				now := time.Now()
				begin.Store(&now)
			}
			// Who spins must leave the processor now and then to those that have none yet.
			for spins := 1; begin.Load() == nil; spins++ {
				if spins%1000 == 0 {
					runtime.Gosched()
				}
			}
			if r == 0 {
				r = s.row.do(l, n)
			}
			ends[i], results[i] = time.Now(), r
		})
	}
	done.Wait()
	var took time.Duration
	for i, r := range results {
		if r != 0 {
			return 0, r
		}
		took = max(took, ends[i].Sub(*begin.Load()))
	}
	return took, 0
}
