// Package drivertest tests drivers: whether the streams, events, memory, capture
// and sharing between processes of a table of driver functions answer as package
// cuda relies on and as NVIDIA's driver does. It holds the simulated GPU of package
// cudatest, real drivers and wrappers of either to one rule:
//
//	func TestTracedDriver(t *testing.T) {
//		drivertest.Run(t, func(testing.TB) *driver.API {
//			return Trace(cudatest.New(cudatest.Config{}).API())
//		})
//	}
package drivertest

import (
	"slices"
	"testing"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Run tests a table of driver functions: all rows of the suite, each as a
// subtest whose name begins with the rule that it checks, or with "driver" for an
// answer that no rule asks for but that the library builds on.
//
// Run calls open once for t itself, where open may skip for want of a driver, and
// once more for each row. It may return the same table each time. What open
// registers with Cleanup runs after everything that the row made has been
// destroyed: a check for leaks can stand there, but not one for misuse, which rows
// commit on purpose.
//
// Rows for two devices use the first two and skip where there is one; rows skip
// too where the driver lacks an optional function. Nothing runs in parallel,
// because a stream capture forbids calls to the whole process. The suite uses
// kernels of its own, some 32 MiB of device memory, and real time: it cannot run
// in a testing/synctest bubble.
func Run(t *testing.T, open func(testing.TB) *driver.API) {
	t.Helper()
	s := suite{open: open, limit: rowLimit}
	devices := s.keep(t)
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) { s.run(t, r, devices) })
	}
}

const (
	// rowLimit is how long a row may take before its holds are let go. A row
	// takes a few milliseconds; one that reaches this is blocked.
	rowLimit = 10 * time.Second
	// settle is how long work that must wait is watched not to run. A GPU starts
	// work within some 10 µs.
	settle = 3 * time.Millisecond
	// suiteDevices is how many devices the suite uses.
	suiteDevices = 2
)

// A row is one test of the suite.
type row struct {
	name    string
	devices int // how many devices it needs; 0 counts as one
	run     func(b *bench)
}

// rows returns the whole suite.
func rows() []row {
	return slices.Concat(
		contextRows,
		streamRows,
		orderRows,
		queueRows,
		eventRows,
		recordRows,
		contextRecordRows,
		elapsedRows,
		captureRows,
		graphRows,
		graphExecRows,
		ipcRows,
		copyRows,
		memoryRows,
		poolRows,
		poolFigureRows,
		registerRows,
		rectangleRows,
		peerRows,
		moduleRows,
		kernelRows,
		hostFuncRows,
	)
}

// A suite runs rows on the tables that open returns.
type suite struct {
	open  func(testing.TB) *driver.API
	limit time.Duration
}

// keep readies the driver for the rows and returns how many devices it has.
// Until t ends, it holds a reference to the primary contexts: a driver makes a
// context in tenths of a second, which would otherwise happen in every row. It
// also uses every kind of operation once, because a driver may load the code of
// one at its first use and wait for the whole device meanwhile, and that would
// never end in a row that holds a stream.
func (s suite) keep(t testing.TB) int {
	t.Helper()
	b := newBench(t, s.open(t), 0)
	for d := range b.ctx {
		st := b.stream(d)
		mem, host := b.mem(d, 64), b.pinned(64)
		b.ok("MemsetD8Async", b.MemsetD8Async(mem, 1, 64, st))
		b.ok("MemsetD16Async", b.MemsetD16Async(mem, 1, 32, st))
		b.ok("MemsetD32Async", b.MemsetD32Async(mem, 1, 16, st))
		b.ok("MemcpyDtoDAsync", b.MemcpyDtoDAsync(mem+32, mem, 32, st))
		b.ok("MemcpyDtoHAsync", b.MemcpyDtoHAsync(hostPointer(host), mem, 64, st))
		b.ok("MemcpyHtoDAsync", b.MemcpyHtoDAsync(mem, hostPointer(host), 64, st))
		b.ok("StreamSynchronize", b.StreamSynchronize(st))
		b.with(d, func() {
			b.ok("MemsetD32Async on the default stream", b.MemsetD32Async(mem, 1, 16, 0))
			b.ok("CtxSynchronize", b.CtxSynchronize())
		})
	}
	b.useGraph()
	b.useKernels()
	count, r := b.DeviceGetCount()
	b.ok("DeviceGetCount", r)
	return int(count)
}

// run runs r, or skips it where the driver has too few devices.
func (s suite) run(t testing.TB, r row, devices int) {
	t.Helper()
	if r.devices > devices {
		t.Skipf("needs %d devices, the driver has %d", r.devices, devices)
	}
	r.run(newBench(t, s.open(t), s.limit))
}
