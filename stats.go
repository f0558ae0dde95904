package cuda

// Stats counts the native objects of a [Driver], for leak checks in tests and
// gauges in services. Read it with [Driver.Stats].
type Stats struct {
	Streams         int // created and not destroyed
	ExternalStreams int // adopted and not closed
	Events          int // recorded or exported and not closed
	Buffers         int // of device memory
	HostBuffers     int // of pinned or registered host memory
	Modules         int
	Graphs          int // executable ones too
	// Forgotten counts the objects that the garbage collector had to close since
	// the driver was opened, except external streams, which have nothing to free. It
	// should stay 0.
	Forgotten int
}

// Stats returns the counts at this moment. Any goroutine may call it; it makes
// no driver call.
func (d *Driver) Stats() Stats {
	if d == nil || d.native == nil {
		return Stats{}
	}
	l := &d.native.Live
	return Stats{
		Streams:         int(l.Streams.Load()),
		ExternalStreams: int(l.ExternalStreams.Load()),
		Events:          int(l.Events.Load()),
		Buffers:         int(l.Buffers.Load()),
		HostBuffers:     int(l.HostBuffers.Load()),
		Modules:         int(l.Modules.Load()),
		Graphs:          int(l.Graphs.Load()),
		Forgotten:       int(l.Forgotten.Load()),
	}
}

// WaitStats are figures about the waits on the host for a [Driver]'s devices, for
// gauges in services. Read them with [Driver.WaitStats]; to publish them:
//
//	expvar.Publish("cuda_waits", expvar.Func(func() any { return drv.WaitStats() }))
type WaitStats struct {
	Waiting  int // waits that are parked now, of goroutines and behind Done
	Watchers int // goroutines that poll for all of them now, each with a thread at most

	// Since the driver was opened:

	Parked    uint64 // waits that were parked, because they were not over soon
	Woken     uint64 // parked waits that ended because their work was done or failed, or by Close
	Cancelled uint64 // parked waits that were given up: by their context, or as another one decided a WaitAny or failed a WaitAll
	Wakeups   uint64 // times that such a goroutine woke to ask
	Queries   uint64 // questions that all of them asked the driver
}

// WaitStats returns the figures at this moment. Any goroutine may call it; it makes
// no driver call.
func (d *Driver) WaitStats() (all WaitStats) {
	if d == nil {
		return all
	}
	for _, dev := range d.devices {
		s := dev.native.Poller.Stats()
		all.Waiting += s.Waiting
		all.Watchers += s.Pollers
		all.Parked += s.Parked
		all.Woken += s.Woken
		all.Cancelled += s.Cancelled
		all.Wakeups += s.Wakeups
		all.Queries += s.Queries
	}
	return all
}
