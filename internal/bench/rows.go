package bench

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Rows returns all rows, in the order in which they are shown.
func Rows() []*Row {
	return []*Row{
		&transition,
		&record, &recordTiming, &query, &wait, &waitStream, &streamQuery, &streamSync, &elapsed,
		&eventLife, &streamLife, &currentStream,
		&recordDefault, &waitDefault, &queryDefault, &waitStreamDefault,
		&launch, &copy4, &copy64K, &allocFree, &roundTrip, &graph,
	}
}

// lockless is how many batches of what waits for no lock are a sample of several threads.
const lockless = 40

// RowByID returns the row with this ID, nil if there is none.
func RowByID(id string) *Row {
	for _, r := range Rows() {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Both loops are inlined where they are called, and the function in them too, so that
// nothing is measured but the calls.

func methods(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func functions(n int, do func() driver.Result) driver.Result {
	for range n {
		if r := do(); r != driver.Success {
			return r
		}
	}
	return driver.Success
}

// first is the bit of a call's first argument in [Call].Load.
const first = 1

// out is the address that calls write their result to, and where others load it from.
func (f *Fixture) out() uint64 { return address(unsafe.Pointer(&f.words.out)) }

func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

func (f *Fixture) pushContext() Call {
	return Call{Symbol: "cuCtxPushCurrent_v2", Args: []uint64{uint64(f.native.context)}}
}

func (f *Fixture) popContext() Call {
	return Call{Symbol: "cuCtxPopCurrent_v2", Args: []uint64{f.out()}}
}

func callRecord(e driver.Event, s driver.Stream) Call {
	return Call{Symbol: "cuEventRecord", Args: []uint64{uint64(e), uint64(s)}}
}

func callWait(s driver.Stream, e driver.Event) Call {
	return Call{Symbol: "cuStreamWaitEvent", Args: []uint64{uint64(s), uint64(e), 0}}
}
