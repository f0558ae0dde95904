package cudatest

import (
	"fmt"
	"math"
	"time"
)

// Config describes a simulated GPU. The zero value is a useful one: one device
// under a CUDA 13.0 driver.
//
// All durations and bandwidths are of the simulation: no result that depends on
// them says anything about a real GPU.
type Config struct {
	// Devices is how many devices there are; zero means one. A negative number
	// means a machine without any: Init answers NO_DEVICE.
	Devices int

	// DriverVersion is the driver's CUDA version in its own form, 1000*major +
	// 10*minor; zero means 13000. Functions of the table that are newer than the
	// version are missing, as they are in such a driver. Below driver.Floor,
	// required functions are nil too: such a table is there to be refused.
	DriverVersion int

	// Name is the devices' name; empty means "Simulated GPU".
	Name string

	// Memory is the size of each device's memory in bytes; zero means 4 GiB.
	// Allocations take as much of the test's own memory.
	Memory uint64

	// NoMemoryPools makes devices without memory pools: asking for one answers
	// NOT_SUPPORTED, as on old GPUs and under some hypervisors.
	NoMemoryPools bool
	// NoPeerAccess makes devices whose kernels cannot touch each other's memory.
	// Copies between them work.
	NoPeerAccess bool

	// AllowRaces makes [GPU.Problems] say nothing of races: of operations that use the
	// same memory, at least one to write it, with nothing that orders them.
	AllowRaces bool

	// QueueDepth is how many operations a stream takes that are not done: kernels, copies,
	// memsets, writes and host functions. With more, the call that enqueues blocks its thread until
	// the stream moves on, and so does the creation of streams meanwhile. Zero means 1,020,
	// which an H200 has; negative: there is no limit.
	QueueDepth int

	// HostBandwidth is how many bytes per second a copy between host and device
	// moves; zero means 50e9.
	HostBandwidth float64
	// PeerBandwidth is the same for a copy between two devices; zero means 200e9.
	PeerBandwidth float64
	// DeviceBandwidth is the same for a copy within a device and for a memset;
	// zero means 2e12.
	DeviceBandwidth float64

	// Latency is what each copy and each memset takes beside its bytes; zero
	// means 2 µs, a negative duration means none.
	Latency time.Duration
}

// withDefaults returns c with its zero fields replaced.
func (c Config) withDefaults() Config {
	if c.Devices == 0 {
		c.Devices = 1
	}
	c.Devices = max(c.Devices, 0)
	if c.DriverVersion == 0 {
		c.DriverVersion = 13000
	}
	if c.Name == "" {
		c.Name = "Simulated GPU"
	}
	switch {
	case c.QueueDepth == 0:
		c.QueueDepth = 1020
	case c.QueueDepth < 0:
		c.QueueDepth = math.MaxInt
	}
	if c.Memory == 0 {
		c.Memory = 4 << 30
	}
	for _, b := range []struct {
		field *float64
		def   float64
	}{{&c.HostBandwidth, 50e9}, {&c.PeerBandwidth, 200e9}, {&c.DeviceBandwidth, 2e12}} {
		if *b.field == 0 {
			*b.field = b.def
		}
		if *b.field < 0 {
			panic(fmt.Sprintf("cudatest: a bandwidth of %v bytes per second", *b.field))
		}
	}
	if c.Latency == 0 {
		c.Latency = 2 * time.Microsecond
	}
	c.Latency = max(c.Latency, 0)
	if c.Devices > deviceLimit {
		panic(fmt.Sprintf("cudatest: %d devices; there can be %d", c.Devices, deviceLimit))
	}
	return c
}

// moving returns how long it takes to move bytes at a bandwidth.
func (c *Config) moving(bytes uint64, bandwidth float64) time.Duration {
	return c.Latency + time.Duration(float64(bytes)/bandwidth*1e9)
}
