// Package bench has what this module's speed is measured by: the calls of the hot
// path, as rows, each done by the public methods, by the bare table of driver
// functions, and described for whoever does them in another language.
package bench

import (
	"cmp"

	"github.com/purecuda/cuda/driver"
)

// Row is one operation that is measured.
type Row struct {
	// ID names the row in files, Title in tables: "record", "`e.Record(s)`".
	ID, Title string
	// Batch is how many operations fit into a sample, so that no queue of the device
	// fills: beyond that the host's time would be the device's.
	Batch int
	// ParallelBatches is how many batches each of several threads does in a sample, so
	// that beginning and ending take little of it; 4 if it is 0. It is more for what takes
	// little time, even with many threads, as it waits for no lock of the driver.
	ParallelBatches int
	// Method does the operation n times by the public methods.
	Method func(f *Fixture, n int) error
	// Table does it n times by the driver's functions alone. The device's context is
	// current on the calling thread. It is nil if there is nothing in the driver that
	// the operation could be compared with.
	Table func(f *Fixture, n int) driver.Result
	// Calls describes one operation by the driver's functions, in order, for engines
	// that call them by their addresses; nil where Table is. Some arguments are addresses
	// of f's memory: f must be reachable while they are used.
	Calls func(f *Fixture) []Call
}

// ParallelBatch is how many operations each of several threads does in a sample.
func (r *Row) ParallelBatch() int { return cmp.Or(r.ParallelBatches, 4) * r.Batch }

// Call is a call of a driver function by its C signature.
type Call struct {
	Symbol string // "cuEventRecord"
	Args   []uint64
	// Load has a bit for each argument that is the address of a word to be loaded
	// when the call is made: what an earlier call has written.
	Load uint32
}
