package bench

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Together calls each function with n on a goroutine of its own. All begin at the same
// moment, and the time is that from there until the last has returned.
func Together(n int, do []func(n int) error) (time.Duration, error) {
	var (
		wg    sync.WaitGroup
		ready atomic.Int32
		begun atomic.Bool
		begin time.Time
		ends  = make([]time.Time, len(do))
		errs  = make([]error, len(do))
	)
	for i := range do {
		wg.Go(func() {
			if int(ready.Add(1)) == len(do) {
				begin = time.Now()
				begun.Store(true)
			}
			// To be woken one after the other would take longer than a sample. Gosched is
			// for those that there is no processor for.
			for !begun.Load() {
				runtime.Gosched()
			}
			errs[i] = do[i](n)
			ends[i] = time.Now()
		})
	}
	wg.Wait()
	return slices.MaxFunc(ends, time.Time.Compare).Sub(begin), errors.Join(errs...)
}
