package wait

import "sync/atomic"

// Stats are figures about a [Poller]. At rest Parked is Woken, Cancelled and Waiting
// together.
type Stats struct {
	Waiting int // waits that are parked now; [All] and [Any] count as often as they have points
	Pollers int // goroutines that poll, each with a thread at most

	// Since the beginning:

	Parked    uint64 // waits that were parked, because they were not over soon
	Woken     uint64 // those that ended otherwise than by being cancelled
	Cancelled uint64 // those that were given up: the context ended, or another of several decided
	Wakeups   uint64 // times that a goroutine woke to ask
	Queries   uint64 // polls
}

// Stats returns the figures at this moment.
func (p *Poller) Stats() Stats {
	c := &p.count
	return Stats{
		Waiting:   int(c.waiting.Load()),
		Pollers:   int(c.pollers.Load()),
		Parked:    c.parked.Load(),
		Woken:     c.woken.Load(),
		Cancelled: c.cancelled.Load(),
		Wakeups:   c.wakeups.Load(),
		Queries:   c.queries.Load(),
	}
}

type counters struct {
	waiting, pollers                           atomic.Int64
	parked, woken, cancelled, wakeups, queries atomic.Uint64
}

func (c *counters) park() {
	c.parked.Add(1)
	c.waiting.Add(1)
}

func (c *counters) complete(n int) {
	c.waiting.Add(-int64(n))
	c.woken.Add(uint64(n))
}

func (c *counters) cancel() {
	c.waiting.Add(-1)
	c.cancelled.Add(1)
}
