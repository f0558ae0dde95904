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
	// the driver was opened, but for adopted streams, of which nothing is lost. It
	// should stay 0.
	Forgotten int
}

// Stats returns the counts at this moment. Any goroutine may call it; it makes
// no driver call.
func (d *Driver) Stats() Stats {
	if d == nil {
		return Stats{}
	}
	return Stats{
		Streams:         int(d.live[kindStream].Load()),
		ExternalStreams: int(d.live[kindExternalStream].Load()),
		Events:          int(d.live[kindEvent].Load()),
		Buffers:         int(d.live[kindBuffer].Load() + d.live[kindPoolBuffer].Load()),
		HostBuffers:     int(d.live[kindHostBuffer].Load() + d.live[kindRegistered].Load()),
		Modules:         int(d.live[kindModule].Load()),
		Graphs:          int(d.live[kindGraph].Load() + d.live[kindGraphExec].Load()),
		Forgotten:       int(d.forgotten.Load()),
	}
}
