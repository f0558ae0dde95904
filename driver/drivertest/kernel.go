package drivertest

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// Kernels and launches, with the kernels of internal/kernels.

var kernelRows = []row{
	{"driver: a kernel has its place in the stream", 0, kernelInOrder},
	{"driver: arguments are taken from an array or a buffer", 0, kernelArguments},
	{"driver: a struct is one argument", 0, structArgument},
	{"driver: a launch on a created stream needs no context", 0, kernelContext},
	{"driver: bad launches are refused and harm nothing", 0, badLaunches},
	{"driver: a kernel does not run on another device's stream", 2, kernelElsewhere},
	{"driver: more shared memory must be asked for", 0, sharedMemory},
	{"driver: a spin takes its time", 0, spinTime},
	{"driver: a cooperative launch runs all blocks at once", 0, cooperative},
	{"driver: a kernel is a node of a graph", 0, kernelNode},
}

// image returns a PTX text as a driver wants it.
func image(ptx string) unsafe.Pointer { return hostPointer(append([]byte(ptx), 0)) }

// module loads the kernels on a device, for as long as the row runs. A driver
// may wait for the device meanwhile, so this comes before any hold.
func (b *bench) module(device int) (m driver.Module) {
	b.t.Helper()
	b.with(device, func() {
		var r driver.Result
		m, r = b.ModuleLoadDataEx(image(kernels.PTX), 0, nil, nil)
		b.ok("ModuleLoadDataEx", r)
	})
	b.t.Cleanup(func() {
		b.releaseAll() // unloading may wait, too
		if r := b.ModuleUnload(m); r != driver.Success {
			b.t.Errorf("cleaning up: ModuleUnload: %v", r)
		}
	})
	return m
}

// kernel returns a kernel of m, and launches it once with arguments that make it
// do nothing: a driver may load its code at the first launch, and wait for the
// device meanwhile.
func (b *bench) kernel(device int, m driver.Module, name string, idle unsafe.Pointer) driver.Func {
	b.t.Helper()
	f, r := b.ModuleGetFunction(m, "purecuda_"+name)
	b.ok("ModuleGetFunction", r)
	s := b.stream(device)
	b.run("LaunchKernel", f, s, idle)
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	return f
}

// run launches f with one block of 32 threads.
func (b *bench) run(what string, f driver.Func, s driver.Stream, params unsafe.Pointer) {
	b.t.Helper()
	b.ok(what, b.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, params, nil))
}

// params returns the array of a launch's arguments.
func params(args ...unsafe.Pointer) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(args)) }

// fillArgs are the arguments of purecuda_fill.
func fillArgs(dst driver.DevicePtr, n uint64, value uint32) unsafe.Pointer {
	return params(unsafe.Pointer(&dst), unsafe.Pointer(&n), unsafe.Pointer(&value))
}

// fill returns purecuda_fill of a device.
func (b *bench) fill(device int) driver.Func {
	b.t.Helper()
	return b.kernel(device, b.module(device), "fill", fillArgs(0, 0, 0))
}

// pieceWords is how many words a piece has, and each gives a word whose bytes
// are all v.
const pieceWords = piece / 4

func each(v uint8) uint32 { return uint32(v) * 0x01010101 }

// useKernels runs what the rows of kernels and host functions use once: see
// suite.keep.
func (b *bench) useKernels() {
	b.t.Helper()
	for d := range b.ctx {
		f, s := b.fill(d), b.stream(d)
		b.run("LaunchKernel", f, s, fillArgs(b.mem(d, piece), pieceWords, 1))
		h := driver.NewHostFunc(func() {})
		b.ok("LaunchHostFunc", b.LaunchHostFunc(s, h))
		b.ok("StreamSynchronize", b.StreamSynchronize(s))
		h.Release()
	}
}

func kernelInOrder(b *bench) {
	f := b.fill(0)
	s, x, y, w := b.stream(0), b.mem(0, 2*piece), b.mem(0, piece), b.word()
	b.set(s, x, 0)
	b.set(s, x+piece, 0)
	h := b.hold(s)
	b.run("LaunchKernel", f, s, fillArgs(x, pieceWords, each(1)))
	b.copy(s, y, x)
	b.run("LaunchKernel", f, s, fillArgs(x, pieceWords, each(2)))
	b.mark(s, w)
	b.unreached("work behind a held kernel", s, w)
	h.release()
	b.reached("work behind a kernel", s, w)
	b.contains("what was copied between two kernels", s, y, 1)
	b.contains("what the second kernel filled", s, x, 2)
	b.contains("memory behind that", s, x+piece, 0)
}

// What the elements before the buffer and before its size say.
const (
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

func kernelArguments(b *bench) {
	m := b.module(0)
	var none struct {
		p [3]driver.DevicePtr
		n uint64
	}
	f := b.kernel(0, m, "add", params(unsafe.Pointer(&none.p[0]), unsafe.Pointer(&none.p[1]), unsafe.Pointer(&none.p[2]), unsafe.Pointer(&none.n)))
	fill := b.kernel(0, m, "fill", fillArgs(0, 0, 0))
	s, one, two := b.stream(0), b.mem(0, piece), b.mem(0, piece)
	b.run("LaunchKernel", fill, s, fillArgs(one, pieceWords, math.Float32bits(1)))
	b.run("LaunchKernel", fill, s, fillArgs(two, pieceWords, math.Float32bits(2)))
	three := bytes.Repeat([]byte{0, 0, 0x40, 0x40}, pieceWords)

	type addArgs struct {
		dst, a, b driver.DevicePtr
		n         uint64
	}
	for what, launch := range map[string]func(a *addArgs) driver.Result{
		"an array": func(a *addArgs) driver.Result {
			p := params(unsafe.Pointer(&a.dst), unsafe.Pointer(&a.a), unsafe.Pointer(&a.b), unsafe.Pointer(&a.n))
			return b.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, p, nil)
		},
		"a buffer": func(a *addArgs) driver.Result {
			size := unsafe.Sizeof(*a)
			extra := params(nil, unsafe.Pointer(a), nil, unsafe.Pointer(&size), nil)
			slots := unsafe.Slice((*uintptr)(extra), 3) // some hold no pointers, but numbers
			slots[0], slots[2] = launchParamBufferPointer, launchParamBufferSize
			return b.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, nil, extra)
		},
	} {
		a := &addArgs{b.mem(0, piece), one, two, pieceWords}
		sum := a.dst
		b.set(s, sum, 0)
		h := b.hold(s)
		b.ok("LaunchKernel with "+what, launch(a))
		*a = addArgs{one, one, one, 0} // what was given counts
		h.release()
		b.bytes("the sum, by "+what, b.read(s, sum, piece), three)
	}
	b.bytes("the summand", b.read(s, two, piece), bytes.Repeat([]byte{0, 0, 0, 0x40}, pieceWords))
}

func structArgument(b *bench) {
	m := b.module(0)
	var p struct { // the argument of purecuda_affine
		dst, src      driver.DevicePtr
		scale, offset float32
		n             uint64
	}
	f := b.kernel(0, m, "affine", params(unsafe.Pointer(&p)))
	fill := b.kernel(0, m, "fill", fillArgs(0, 0, 0))
	s := b.stream(0)
	p.dst, p.src, p.n = b.mem(0, piece), b.mem(0, piece), pieceWords
	p.scale, p.offset = 2, 1
	b.run("LaunchKernel", fill, s, fillArgs(p.src, pieceWords, math.Float32bits(3)))
	b.run("LaunchKernel with a struct", f, s, params(unsafe.Pointer(&p)))
	b.bytes("2*3 + 1", b.read(s, p.dst, piece), bytes.Repeat([]byte{0, 0, 0xe0, 0x40}, pieceWords))

	for _, c := range []struct {
		what         string
		f            driver.Func
		index        uint64
		offset, size uint64
	}{
		{"the struct", f, 0, 0, 32}, {"a pointer", fill, 0, 0, 8}, {"the count", fill, 1, 8, 8}, {"the value", fill, 2, 16, 4},
	} {
		offset, size, r := b.FuncGetParamInfo(c.f, c.index)
		b.need("FuncGetParamInfo", r)
		equal(b, "offset of "+c.what, offset, c.offset)
		equal(b, "size of "+c.what, size, c.size)
	}
	_, _, r := b.FuncGetParamInfo(f, 1)
	b.want("FuncGetParamInfo behind the last", r, driver.ErrorInvalidValue)
}

func kernelContext(b *bench) {
	f := b.fill(0)
	s, x := b.stream(0), b.mem(0, piece)
	h := driver.NewHostFunc(func() {})
	defer h.Release()
	b.bare(func() {
		b.run("LaunchKernel", f, s, fillArgs(x, pieceWords, each(7)))
		b.ok("LaunchHostFunc", b.LaunchHostFunc(s, h))
		b.contains("what the kernel filled", s, x, 7)
	})
}

func badLaunches(b *bench) {
	f := b.fill(0)
	s, x := b.stream(0), b.mem(0, piece)
	for _, c := range []struct {
		what                       string
		gridX, gridY, blockX, size uint32
	}{
		{"an empty grid", 0, 1, 1, 0},
		{"a grid of 70000 in y", 1, 70000, 1, 0},
		{"an empty block", 1, 1, 0, 0},
		{"a block of 2048 threads", 1, 1, 2048, 0},
		{"1 MiB of shared memory", 1, 1, 1, 1 << 20},
	} {
		r := b.LaunchKernel(f, c.gridX, c.gridY, 1, c.blockX, 1, 1, c.size, s, fillArgs(x, pieceWords, each(1)), nil)
		b.want("LaunchKernel with "+c.what, r, driver.ErrorInvalidValue)
	}
	b.run("LaunchKernel after that", f, s, fillArgs(x, pieceWords, each(2)))
	b.contains("what it filled", s, x, 2)
}

func kernelElsewhere(b *bench) {
	f, far := b.fill(0), b.stream(1)
	s, x := b.stream(0), b.mem(0, piece)
	for d := range b.ctx {
		b.with(d, func() {
			r := b.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, far, fillArgs(x, pieceWords, each(1)), nil)
			b.want("LaunchKernel on the other device's stream", r, driver.ErrorInvalidHandle)
		})
	}
	b.with(1, func() {
		b.run("LaunchKernel while the other context is current", f, s, fillArgs(x, pieceWords, each(2)))
	})
	b.contains("what it filled", s, x, 2)
}

func sharedMemory(b *bench) {
	f := b.fill(0)
	s, x := b.stream(0), b.mem(0, piece)
	most, r := b.DeviceGetAttribute(driver.AttributeMaxSharedMemoryPerBlockOptin, b.dev[0])
	b.ok("DeviceGetAttribute", r)
	launch := func(v uint8) driver.Result {
		return b.LaunchKernel(f, 1, 1, 1, 32, 1, 1, uint32(most), s, fillArgs(x, pieceWords, each(v)), nil)
	}
	if most <= 48<<10 {
		b.t.Skipf("the device has no more than the %d bytes that every launch may have", most)
	}
	b.want("LaunchKernel with all shared memory", launch(1), driver.ErrorInvalidValue)
	b.want("FuncSetAttribute to 1 MiB", b.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, 1<<20), driver.ErrorInvalidValue)
	b.ok("FuncSetAttribute to all", b.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, most))
	b.ok("LaunchKernel with all, once it was asked for", launch(2))
	b.contains("what it filled", s, x, 2)
}

func spinTime(b *bench) {
	var ns uint64
	args := params(unsafe.Pointer(&ns))
	f := b.kernel(0, b.module(0), "spin", args)
	s, start, end := b.stream(0), b.eventWith(0, driver.EventDefault), b.eventWith(0, driver.EventDefault)
	ns = 2e6
	b.ok("EventRecord", b.EventRecord(start, s))
	b.run("LaunchKernel", f, s, args)
	b.ok("EventRecord", b.EventRecord(end, s))
	b.ok("EventSynchronize", b.EventSynchronize(end))
	ms, r := b.EventElapsedTime(start, end)
	b.ok("EventElapsedTime", r)
	if ms < 2 || ms > 50 {
		b.t.Fatalf("a spin of 2 ms took %v ms", ms)
	}
}

func cooperative(b *bench) {
	f, r := b.ModuleGetFunction(b.module(0), "purecuda_rendezvous")
	b.ok("ModuleGetFunction", r)
	n, r := b.DeviceGetAttribute(driver.AttributeMultiprocessorCount, b.dev[0])
	b.ok("DeviceGetAttribute", r)
	s, size := b.stream(0), 4*uint64(n)
	counter, arrived := b.mem(0, 4), b.mem(0, size)
	args := params(unsafe.Pointer(&counter), unsafe.Pointer(&arrived))
	b.ok("MemsetD32Async", b.MemsetD32Async(counter, 0, 1, s))
	b.ok("MemsetD32Async", b.MemsetD32Async(arrived, 0, uint64(n), s))
	b.want("LaunchCooperativeKernel of a million blocks", b.LaunchCooperativeKernel(f, 1e6, 1, 1, 256, 1, 1, 0, s, args), driver.ErrorCooperativeLaunchTooLarge)
	b.ok("LaunchCooperativeKernel", b.LaunchCooperativeKernel(f, uint32(n), 1, 1, 32, 1, 1, 0, s, args))
	b.bytes("the blocks that arrived", b.read(s, arrived, size), bytes.Repeat([]byte{1, 0, 0, 0}, int(n)))
}

func kernelNode(b *bench) {
	f := b.fill(0)
	s, x := b.stream(0), b.mem(0, piece)
	b.set(s, x, 0)
	args := fillArgs(x, pieceWords, each(3))
	g := b.exec(s, func() { b.run("LaunchKernel in a capture", f, s, args) })
	b.contains("memory before any launch", s, x, 0)
	for range 2 {
		b.launch(g, s)
		b.contains("memory after a launch", s, x, 3)
		b.set(s, x, 0)
	}
}
