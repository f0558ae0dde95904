package bench

import (
	"errors"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

var waitStream = Row{
	ID: "wait-stream", Title: "`s.WaitStream(other)`", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.Other.WaitStream(f.S) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			if r := f.api.EventRecord(f.native.spare, f.native.s); r != driver.Success {
				return r
			}
			return f.api.StreamWaitEvent(f.native.other, f.native.spare, 0)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{callRecord(f.native.spare, f.native.s), callWait(f.native.other, f.native.spare)}
	},
}

var streamQuery = Row{
	ID: "stream-query", Title: "`s.Query()`", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { _, err := f.S.Query(); return err })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.StreamQuery(f.native.s) })
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuStreamQuery", Args: []uint64{uint64(f.native.s)}}}
	},
}

var streamSync = Row{
	ID: "stream-sync", Title: "`s.Synchronize()`, an idle stream", Batch: 500,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.S.Synchronize() })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.StreamSynchronize(f.native.s) })
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuStreamSynchronize", Args: []uint64{uint64(f.native.s)}}}
	},
}

var streamLife = Row{
	ID: "stream-life", Title: "`dev.NewStream(nil)`, `s.Close()`", Batch: 20,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error {
			s, err := f.Dev.NewStream(nil)
			if err != nil {
				return err
			}
			return s.Close()
		})
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			s, r := f.api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			if r != driver.Success {
				return r
			}
			return f.api.StreamDestroy(s)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{
			{Symbol: "cuStreamCreateWithPriority", Args: []uint64{f.out(), uint64(driver.StreamNonBlocking), 0}},
			{Symbol: "cuStreamDestroy_v2", Args: []uint64{f.out()}, Load: first},
		}
	},
}

var currentStream = Row{
	ID: "current-stream", Title: "`dev.CurrentStream(ctx)`", Batch: 500, ParallelBatches: lockless,
	Method: func(f *Fixture, n int) error {
		var s *cuda.Stream
		for range n {
			s = f.Dev.CurrentStream(f.Ctx)
		}
		if s != f.S {
			return errors.New("another stream is the current one")
		}
		return nil
	},
}
