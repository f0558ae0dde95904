package cuda

import "sync/atomic"

// WaitStats are figures about the waits on the host for a [Driver]'s devices, for
// gauges in services. Read them with [Driver.WaitStats]; to publish them:
//
//	expvar.Publish("cuda_waits", expvar.Func(func() any { return drv.WaitStats() }))
type WaitStats struct {
	Waiting  int // waits that are parked now, of goroutines and behind Done
	Watchers int // watchers that run now, each with a thread at most

	// Since the driver was opened:

	Parked    uint64 // waits that were parked, because they were not over soon
	Woken     uint64 // parked waits that ended otherwise than by being cancelled
	Cancelled uint64 // waits that ended with their context
	Wakeups   uint64 // times that a watcher woke to ask
	Queries   uint64 // questions that waits and watchers asked the driver
}

// WaitStats returns the figures at this moment. Any goroutine may call it; it makes
// no driver call.
func (d *Driver) WaitStats() WaitStats {
	if d == nil {
		return WaitStats{}
	}
	c := &d.waits
	return WaitStats{
		Waiting:   int(c.waiting.Load()),
		Watchers:  int(c.watchers.Load()),
		Parked:    c.parked.Load(),
		Woken:     c.woken.Load(),
		Cancelled: c.cancelled.Load(),
		Wakeups:   c.wakeups.Load(),
		Queries:   c.queries.Load(),
	}
}

type waitCounts struct {
	waiting, watchers                          atomic.Int64
	parked, woken, cancelled, wakeups, queries atomic.Uint64
}
