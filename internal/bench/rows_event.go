package bench

import (
	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// transition does least: what it costs is the way into C and back.
var transition = Row{
	ID: "transition", Title: "`drv.API().DriverGetVersion()`", Batch: 500, ParallelBatches: lockless,
	Method: func(f *Fixture, n int) error {
		drv := f.Dev.Driver()
		return methods(n, func() error { _, r := drv.API().DriverGetVersion(); return r.Err() })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { _, r := f.api.DriverGetVersion(); return r })
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuDriverGetVersion", Args: []uint64{f.out()}}}
	},
}

var record = Row{
	ID: "record", Title: "`e.Record(s)`", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.E.Record(f.S) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.EventRecord(f.native.e, f.native.s) })
	},
	Calls: func(f *Fixture) []Call { return []Call{callRecord(f.native.e, f.native.s)} },
}

var recordTiming = Row{
	ID: "record-timing", Title: "`e.Record(s)`, an event with timing", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.Timed.Record(f.S) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.EventRecord(f.native.timed, f.native.s) })
	},
	Calls: func(f *Fixture) []Call { return []Call{callRecord(f.native.timed, f.native.s)} },
}

var query = Row{
	ID: "query", Title: "`e.Query()`", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { _, err := f.E.Query(); return err })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.EventQuery(f.native.e) })
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuEventQuery", Args: []uint64{uint64(f.native.e)}}}
	},
}

var wait = Row{
	ID: "wait", Title: "`e.Wait(s)`", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.E.Wait(f.Other) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.StreamWaitEvent(f.native.other, f.native.e, 0) })
	},
	Calls: func(f *Fixture) []Call { return []Call{callWait(f.native.other, f.native.e)} },
}

var elapsed = Row{
	ID: "elapsed", Title: "`start.ElapsedTime(end)`", Batch: 500, ParallelBatches: lockless,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { _, err := f.Start.ElapsedTime(f.End); return err })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			_, r := f.api.EventElapsedTime(f.native.start, f.native.end)
			return r
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuEventElapsedTime_v2", Args: []uint64{f.out(), uint64(f.native.start), uint64(f.native.end)}}}
	},
}

var eventLife = Row{
	ID: "event-life", Title: "`cuda.NewEvent(nil)`, `e.Record(s)`, `e.Close()`", Batch: 200,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error {
			e := cuda.NewEvent(nil)
			if err := e.Record(f.S); err != nil {
				return err
			}
			return e.Close()
		})
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			e, r := f.api.EventCreate(driver.EventDisableTiming)
			if r != driver.Success {
				return r
			}
			if r := f.api.EventRecord(e, f.native.s); r != driver.Success {
				return r
			}
			return f.api.EventDestroy(e)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{
			{Symbol: "cuEventCreate", Args: []uint64{f.out(), uint64(driver.EventDisableTiming)}},
			{Symbol: "cuEventRecord", Args: []uint64{f.out(), uint64(f.native.s)}, Load: first},
			{Symbol: "cuEventDestroy_v2", Args: []uint64{f.out()}, Load: first},
		}
	},
}

var roundTrip = Row{
	ID: "round-trip", Title: "`e.Record(s)`, then `e.Synchronize()`", Batch: 200,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error {
			if err := f.E.Record(f.S); err != nil {
				return err
			}
			return f.E.Synchronize()
		})
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			if r := f.api.EventRecord(f.native.e, f.native.s); r != driver.Success {
				return r
			}
			return f.api.EventSynchronize(f.native.e)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{
			callRecord(f.native.e, f.native.s),
			{Symbol: "cuEventSynchronize", Args: []uint64{uint64(f.native.e)}},
		}
	},
}
