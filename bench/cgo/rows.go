package main

// #cgo noescape cuDriverGetVersion
// #cgo noescape cuEventElapsedTime_v2
// #cgo noescape cuEventCreate
// #cgo noescape cuStreamCreateWithPriority
// #cgo noescape cuMemAllocAsync
// #cgo nocallback cuDriverGetVersion
// #cgo nocallback cuEventRecord
// #cgo nocallback cuEventQuery
// #cgo nocallback cuEventSynchronize
// #cgo nocallback cuEventElapsedTime_v2
// #cgo nocallback cuEventCreate
// #cgo nocallback cuEventDestroy_v2
// #cgo nocallback cuStreamWaitEvent
// #cgo nocallback cuStreamQuery
// #cgo nocallback cuStreamSynchronize
// #cgo nocallback cuStreamCreateWithPriority
// #cgo nocallback cuStreamDestroy_v2
// #cgo nocallback cuLaunchKernel
// #cgo nocallback cuMemcpyAsync
// #cgo nocallback cuMemAllocAsync
// #cgo nocallback cuMemFreeAsync
// #cgo nocallback cuGraphLaunch
// #cgo nocallback record_and_wait
// #cgo nocallback record_default
// #cgo nocallback wait_default
// #cgo nocallback query_default
// #cgo nocallback wait_stream_default
// #include "driver.h"
import "C"

// row is an operation: do makes it n times with cgo, calls describes it for the C loop.
type row struct {
	id, note string
	do       func(l *lane, n int) C.int
	calls    func(l *lane) []call
}

// The notes of rows that are not one call for each call of the driver.
const oneC = "one C function makes all the calls"

var rows = []row{
	{"transition", "", func(_ *lane, n int) C.int {
		for range n {
			var v C.int
			if r := C.cuDriverGetVersion(&v); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuDriverGetVersion", l.address())} }},
	{"record", "", func(l *lane, n int) C.int { return record(l.e, l.s, n) },
		func(l *lane) []call { return []call{l.call("cuEventRecord", l.e, l.s)} }},
	{"record-timing", "", func(l *lane, n int) C.int { return record(l.t, l.s, n) },
		func(l *lane) []call { return []call{l.call("cuEventRecord", l.t, l.s)} }},
	{"query", "", func(l *lane, n int) C.int {
		for e := l.e; n > 0; n-- {
			if r := C.cuEventQuery(e); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuEventQuery", l.e)} }},
	{"wait", "", func(l *lane, n int) C.int {
		for other, e := l.other, l.e; n > 0; n-- {
			if r := C.cuStreamWaitEvent(other, e, 0); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuStreamWaitEvent", l.other, l.e, 0)} }},
	{"wait-stream", oneC, func(l *lane, n int) C.int {
		for e, s, other := l.spare, l.s, l.other; n > 0; n-- {
			if r := C.record_and_wait(e, s, other); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call {
		return []call{l.call("cuEventRecord", l.spare, l.s), l.call("cuStreamWaitEvent", l.other, l.spare, 0)}
	}},
	{"stream-query", "", func(l *lane, n int) C.int {
		for s := l.s; n > 0; n-- {
			if r := C.cuStreamQuery(s); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuStreamQuery", l.s)} }},
	{"stream-sync", "", func(l *lane, n int) C.int {
		for s := l.s; n > 0; n-- {
			if r := C.cuStreamSynchronize(s); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuStreamSynchronize", l.s)} }},
	{"elapsed", "", func(l *lane, n int) C.int {
		for start, end := l.start, l.end; n > 0; n-- {
			var ms C.float
			if r := C.cuEventElapsedTime_v2(&ms, start, end); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuEventElapsedTime_v2", l.address(), l.start, l.end)} }},
	{"event-life", "", eventLife, func(l *lane) []call {
		create := l.call("cuEventCreate", l.address(), 2)
		return []call{create, l.call("cuEventRecord", loaded, l.s), l.call("cuEventDestroy_v2", loaded)}
	}},
	{"stream-life", "", streamLife, func(l *lane) []call {
		return []call{l.call("cuStreamCreateWithPriority", l.address(), 1, 0), l.call("cuStreamDestroy_v2", loaded)}
	}},
	{"record-default", oneC, func(l *lane, n int) C.int {
		for c, e := l.context, l.e; n > 0; n-- {
			if r := C.record_default(c, e); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.push(), l.call("cuEventRecord", l.e, 0), l.pop()} }},
	{"wait-default", oneC, func(l *lane, n int) C.int {
		for c, e := l.context, l.e; n > 0; n-- {
			if r := C.wait_default(c, e); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.push(), l.call("cuStreamWaitEvent", 0, l.e, 0), l.pop()} }},
	{"query-default", oneC, func(l *lane, n int) C.int {
		for c := l.context; n > 0; n-- {
			if r := C.query_default(c); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.push(), l.call("cuStreamQuery", 0), l.pop()} }},
	{"wait-stream-default", oneC, func(l *lane, n int) C.int {
		for c, e, s := l.context, l.spare, l.s; n > 0; n-- {
			if r := C.wait_stream_default(c, e, s); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call {
		return []call{l.call("cuEventRecord", l.spare, l.s), l.push(), l.call("cuStreamWaitEvent", 0, l.spare, 0), l.pop()}
	}},
	{"launch", "", func(l *lane, n int) C.int {
		for f, s := l.kernel, l.s; n > 0; n-- {
			if r := C.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, 0, 0); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call {
		return []call{l.call("cuLaunchKernel", l.kernel, 1, 1, 1, 1, 1, 1, 0, l.s, 0, 0)}
	}},
	{"copy-4", "", func(l *lane, n int) C.int { return copies(l, 4, n) },
		func(l *lane) []call { return []call{l.call("cuMemcpyAsync", l.dst, l.pinned, 4, l.s)} }},
	{"copy-64k", "", func(l *lane, n int) C.int { return copies(l, 65536, n) },
		func(l *lane) []call { return []call{l.call("cuMemcpyAsync", l.dst, l.pinned, 65536, l.s)} }},
	{"alloc-free", "", allocFree, func(l *lane) []call {
		return []call{l.call("cuMemAllocAsync", l.address(), 65536, l.s), l.call("cuMemFreeAsync", loaded, l.s)}
	}},
	{"round-trip", "", roundTrip, func(l *lane) []call {
		return []call{l.call("cuEventRecord", l.e, l.s), l.call("cuEventSynchronize", l.e)}
	}},
	{"graph", "", func(l *lane, n int) C.int {
		for x, s := l.graph, l.s; n > 0; n-- {
			if r := C.cuGraphLaunch(x, s); r != 0 {
				return r
			}
		}
		return 0
	}, func(l *lane) []call { return []call{l.call("cuGraphLaunch", l.graph, l.s)} }},
}

func record(e, s C.handle, n int) C.int {
	for range n {
		if r := C.cuEventRecord(e, s); r != 0 {
			return r
		}
	}
	return 0
}

func copies(l *lane, size C.size_t, n int) C.int {
	for dst, src, s := l.dst, l.pinned, l.s; n > 0; n-- {
		if r := C.cuMemcpyAsync(dst, src, size, s); r != 0 {
			return r
		}
	}
	return 0
}

func eventLife(l *lane, n int) C.int {
	for s := l.s; n > 0; n-- {
		var e C.handle
		if r := C.cuEventCreate(&e, 2); r != 0 {
			return r
		}
		if r := C.cuEventRecord(e, s); r != 0 {
			return r
		}
		if r := C.cuEventDestroy_v2(e); r != 0 {
			return r
		}
	}
	return 0
}

func streamLife(_ *lane, n int) C.int {
	for range n {
		var s C.handle
		if r := C.cuStreamCreateWithPriority(&s, 1, 0); r != 0 {
			return r
		}
		if r := C.cuStreamDestroy_v2(s); r != 0 {
			return r
		}
	}
	return 0
}

func allocFree(l *lane, n int) C.int {
	for s := l.s; n > 0; n-- {
		var p C.handle
		if r := C.cuMemAllocAsync(&p, 65536, s); r != 0 {
			return r
		}
		if r := C.cuMemFreeAsync(p, s); r != 0 {
			return r
		}
	}
	return 0
}

func roundTrip(l *lane, n int) C.int {
	for e, s := l.e, l.s; n > 0; n-- {
		if r := C.cuEventRecord(e, s); r != 0 {
			return r
		}
		if r := C.cuEventSynchronize(e); r != 0 {
			return r
		}
	}
	return 0
}
