package bench

import "github.com/purecuda/cuda/driver"

// The default stream needs the device's context around each call.

var recordDefault = Row{
	ID: "record-default", Title: "`e.Record(s)`, the default stream", Batch: 500,
	Method: func(f *Fixture, n int) error {
		s := f.Dev.DefaultStream()
		return methods(n, func() error { return f.E.Record(s) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			return f.bound(func() driver.Result { return f.api.EventRecord(f.native.e, 0) })
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{f.pushContext(), callRecord(f.native.e, 0), f.popContext()}
	},
}

var waitDefault = Row{
	ID: "wait-default", Title: "`e.Wait(s)`, the default stream", Batch: 500,
	Method: func(f *Fixture, n int) error {
		s := f.Dev.DefaultStream()
		return methods(n, func() error { return f.E.Wait(s) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			return f.bound(func() driver.Result { return f.api.StreamWaitEvent(0, f.native.e, 0) })
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{f.pushContext(), callWait(0, f.native.e), f.popContext()}
	},
}

var queryDefault = Row{
	ID: "query-default", Title: "`s.Query()`, the default stream", Batch: 500,
	Method: func(f *Fixture, n int) error {
		s := f.Dev.DefaultStream()
		return methods(n, func() error { _, err := s.Query(); return err })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			return f.bound(func() driver.Result { return f.api.StreamQuery(0) })
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{f.pushContext(), {Symbol: "cuStreamQuery", Args: []uint64{0}}, f.popContext()}
	},
}

var waitStreamDefault = Row{
	ID: "wait-stream-default", Title: "`s.WaitStream(other)`, the default stream for another", Batch: 500,
	Method: func(f *Fixture, n int) error {
		s := f.Dev.DefaultStream()
		return methods(n, func() error { return s.WaitStream(f.S) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result {
			if r := f.api.EventRecord(f.native.spare, f.native.s); r != driver.Success {
				return r
			}
			return f.bound(func() driver.Result { return f.api.StreamWaitEvent(0, f.native.spare, 0) })
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{callRecord(f.native.spare, f.native.s), f.pushContext(), callWait(0, f.native.spare), f.popContext()}
	},
}

// bound calls do with the context made current for it alone. The thread is locked.
func (f *Fixture) bound(do func() driver.Result) driver.Result {
	if r := f.api.CtxPushCurrent(f.native.context); r != driver.Success {
		return r
	}
	r := do()
	if _, popped := f.api.CtxPopCurrent(); r == driver.Success {
		r = popped
	}
	return r
}
