//go:build linux && (amd64 || arm64) && !nocuda

package ccall_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/purecuda/cuda/internal/ccall"
)

// descend makes a call with results at every depth of a growing stack, with
// frames of odd sizes, so that many calls stand right before a growth.
func descend(fn uintptr, depth int) error {
	var pad [40]byte
	for i := range pad {
		pad[i] = byte(depth + i)
	}
	f := ccall.Frame{Fn: fn, Arg: [ccall.MaxArgs]uintptr{uintptr(depth)}}
	r := f.CallOut(nil, 1, 2)
	if depth > 0 {
		if err := descend(fn, depth-1); err != nil {
			return err
		}
	}
	// After the deeper frames have moved the stack, these must still be right.
	if n := uint64(depth); r != int32(depth) || f.Out != [2]uint64{n + 1, n + 2} {
		return fmt.Errorf("depth %d: result %d, out %v", depth, r, f.Out)
	}
	for i := range pad {
		if pad[i] != byte(depth+i) {
			return fmt.Errorf("depth %d: the stack was overwritten", depth)
		}
	}
	return nil
}

// TestMovingStacks would catch an address of a result that went stale because
// the goroutine's stack grew or shrank before C wrote through it.
func TestMovingStacks(t *testing.T) {
	l := open(t)
	quick, slow := l.fn(t, "out_two_last"), l.fn(t, "slow_out")
	rounds := 300
	if testing.Short() {
		rounds = 30
	}

	stop := make(chan struct{})
	var collector, callers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC() // shrinks the stacks that are mostly unused
				time.Sleep(time.Millisecond)
			}
		}
	})
	for g := range 16 {
		callers.Go(func() {
			for i := range rounds {
				// Each round in a fresh goroutine, whose stack is small again.
				errs := make(chan error)
				if (g+i)%8 == 0 {
					go func() { errs <- descend(slow, 20) }()
				} else {
					go func() { errs <- descend(quick, 100+i%50) }()
				}
				if err := <-errs; err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	collector.Wait()
}
