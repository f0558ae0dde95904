//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/internal/bench"
)

// Of the processors of a virtual machine some are at times half as fast as others, as
// neighbours use the same cores. The thread that measures stays on the quickest.
const (
	pinnedRounds = 50 // after so many another may be the quickest
	pinSamples   = 5  // on each processor, of which the best counts
	pinBatch     = 1000
)

// pinned calls sample for all rounds, some at a time, each time on the processor that
// is the quickest at that moment. Where threads cannot be bound to processors it goes
// on without, and says so.
func (m *meter) pinned(rounds int, sample func(rounds int) error) (err error) {
	// From a locked thread Go makes no others: they would be bound as it is.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The driver's threads, if it makes some at first use, would be bound, too.
	if err := sample(0); err != nil {
		return err
	}
	allowed, unpinned := affinity()
	defer func() {
		if m.bound {
			err = errors.Join(err, allowed.set())
		}
	}()
	for done := 0; done < rounds; done += pinnedRounds {
		if unpinned == nil {
			unpinned = m.toQuickest(allowed)
			m.bound = unpinned == nil
		}
		if err := sample(min(pinnedRounds, rounds-done)); err != nil {
			return err
		}
	}
	if unpinned != nil {
		fmt.Fprintln(m.progress, "the measuring thread was not bound to a processor:", unpinned)
	}
	return nil
}

// toQuickest binds the calling thread to the allowed processor that does the row
// "record" in C in the least time. After an error the thread is not bound.
func (m *meter) toQuickest(allowed processors) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, allowed.set())
		}
	}()
	f := m.fixtures[0]
	calls, err := m.driver.calls(bench.RowByID("record").Calls(f))
	if err != nil {
		return err
	}
	return quickest(allowed, func() (time.Duration, error) {
		took, err := m.inC(calls)(pinBatch)
		return took, errors.Join(err, f.S.Synchronize())
	})
}

// quickest binds the calling thread to the processor where cost is least.
func quickest(allowed processors, cost func() (time.Duration, error)) error {
	var best processors
	var least time.Duration
	for _, one := range allowed.each() {
		if err := one.set(); err != nil {
			return err
		}
		for range pinSamples {
			took, err := cost()
			if err != nil {
				return err
			}
			if best == (processors{}) || took < least {
				best, least = one, took
			}
		}
	}
	return best.set()
}

// processors is a set of them, a bit for each, as the system calls have it.
type processors [128]uint64

// affinity returns where the calling thread may run.
func affinity() (p processors, err error) {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(p), uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return p, fmt.Errorf("sched_getaffinity: %w", errno)
	}
	return p, nil
}

// set lets the calling thread run nowhere else.
func (p processors) set() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(p), uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return fmt.Errorf("sched_setaffinity: %w", errno)
	}
	return nil
}

// each returns a set for each processor.
func (p processors) each() (all []processors) {
	for i, word := range p {
		for ; word != 0; word &= word - 1 {
			var one processors
			one[i] = 1 << bits.TrailingZeros64(word)
			all = append(all, one)
		}
	}
	return all
}
