package main

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"syscall"
	"unsafe"
)

// pinnedRounds is after how many rounds another processor may be the quickest.
const pinnedRounds = 50

// pin binds the calling thread to the processor that does the row "record" in C in the
// least time. The thread is locked: the Go runtime makes no other from it, which would
// be bound as well.
type pin struct {
	allowed processors
	record  *samples
}

func newPin(lanes []*lane) (*pin, error) {
	i := slices.IndexFunc(rows, func(r row) bool { return r.id == "record" })
	s, err := newSamples(rows[i], lanes, 0, 0)
	if err != nil {
		return nil, err
	}
	p := &pin{record: s}
	return p, p.allowed.call(syscall.SYS_SCHED_GETAFFINITY)
}

// toQuickest looks for the processor and goes there. What fails leaves the thread free.
func (p *pin) toQuickest() {
	var best processors
	var least float64
	err := p.each(func(one processors) error {
		if err := one.call(syscall.SYS_SCHED_SETAFFINITY); err != nil {
			return err
		}
		for range 5 {
			ns, err := p.record.inC(1000)
			if err != nil {
				return err
			}
			if best == (processors{}) || ns < least {
				best, least = one, ns
			}
		}
		return nil
	})
	if err == nil {
		err = best.call(syscall.SYS_SCHED_SETAFFINITY)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the measuring thread was not bound to a processor:", err)
		_ = p.release() // said when it fails again at the end
	}
}

func (p *pin) release() error { return p.allowed.call(syscall.SYS_SCHED_SETAFFINITY) }

// each calls do with each allowed processor.
func (p *pin) each(do func(one processors) error) error {
	for i, word := range p.allowed {
		for ; word != 0; word &= word - 1 {
			var one processors
			one[i] = 1 << bits.TrailingZeros64(word)
			if err := do(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// processors is a set of them, a bit for each, as the system calls have it.
type processors [128]uint64

func (p *processors) call(number uintptr) error {
	_, _, errno := syscall.RawSyscall(number, 0, unsafe.Sizeof(*p), uintptr(unsafe.Pointer(p)))
	if errno != 0 {
		return errno
	}
	return nil
}
