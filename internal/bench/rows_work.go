package bench

import (
	"unsafe"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

var launch = Row{
	ID: "launch", Title: "`prepared.Launch(s, config)`, an empty kernel", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.empty.Launch(f.S, one) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		params := unsafe.Pointer(&f.words.params)
		return functions(n, func() driver.Result {
			return f.api.LaunchKernel(f.native.kernel, 1, 1, 1, 1, 1, 1, 0, f.native.s, params, nil)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuLaunchKernel", Args: []uint64{uint64(f.native.kernel), 1, 1, 1, 1, 1, 1, 0,
			uint64(f.native.s), address(unsafe.Pointer(&f.words.params)), 0}}}
	},
}

var copy4 = Row{
	ID: "copy-4", Title: "`cuda.Copy`, 4 bytes, pinned to device", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return cuda.Copy(f.S, f.device1, f.host1) })
	},
	Table: func(f *Fixture, n int) driver.Result { return f.copy(n, word) },
	Calls: func(f *Fixture) []Call { return f.callCopy(word) },
}

var copy64K = Row{
	ID: "copy-64k", Title: "`cuda.Copy`, 64 KiB, pinned to device", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return cuda.Copy(f.S, f.device, f.host) })
	},
	Table: func(f *Fixture, n int) driver.Result { return f.copy(n, copied) },
	Calls: func(f *Fixture) []Call { return f.callCopy(copied) },
}

func (f *Fixture) copy(n int, bytes uint64) driver.Result {
	dst, src := f.device.Pointer(), f.host.Pointer()
	return functions(n, func() driver.Result { return f.api.MemcpyAsync(dst, src, bytes, f.native.s) })
}

func (f *Fixture) callCopy(bytes uint64) []Call {
	dst, src := f.device.Pointer(), f.host.Pointer()
	return []Call{{Symbol: "cuMemcpyAsync", Args: []uint64{uint64(dst), uint64(src), bytes, uint64(f.native.s)}}}
}

var allocFree = Row{
	ID: "alloc-free", Title: "`cuda.AllocAsync`, `b.Close()`, 64 KiB", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error {
			b, err := cuda.AllocAsync[uint32](f.S, copied/word)
			if err != nil {
				return err
			}
			return b.Close()
		})
	},
	Table: func(f *Fixture, n int) driver.Result {
		if f.native.pool == 0 {
			return driver.ErrorNotSupported
		}
		return functions(n, func() driver.Result {
			p, r := f.api.MemAllocFromPoolAsync(copied, f.native.pool, f.native.s)
			if r != driver.Success {
				return r
			}
			return f.api.MemFreeAsync(p, f.native.s)
		})
	},
	Calls: func(f *Fixture) []Call {
		return []Call{
			{Symbol: "cuMemAllocFromPoolAsync", Args: []uint64{f.out(), copied, uint64(f.native.pool), uint64(f.native.s)}},
			{Symbol: "cuMemFreeAsync", Args: []uint64{f.out(), uint64(f.native.s)}, Load: first},
		}
	},
}

var graph = Row{
	ID: "graph", Title: "`exec.Launch(s)`, a graph of one empty kernel", Batch: 100,
	Method: func(f *Fixture, n int) error {
		return methods(n, func() error { return f.graph.Launch(f.S) })
	},
	Table: func(f *Fixture, n int) driver.Result {
		return functions(n, func() driver.Result { return f.api.GraphLaunch(f.native.graph, f.native.s) })
	},
	Calls: func(f *Fixture) []Call {
		return []Call{{Symbol: "cuGraphLaunch", Args: []uint64{uint64(f.native.graph), uint64(f.native.s)}}}
	},
}
