package main

// #cgo LDFLAGS: -ldl
// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// device is the first one, its primary context current on the thread of main.
type device struct {
	context, kernel C.handle
}

// lane is what one thread works on.
type lane struct {
	*device
	s, other      C.handle
	e, spare      C.handle // without timing
	t, start, end C.handle // with timing
	dst, pinned   C.handle // 64 KiB each
	graph         C.handle
	out           *C.uint64_t // what the C loop's calls write to
}

// check is for what is not measured.
func check(what string, r C.int) error {
	if r != 0 {
		return fmt.Errorf("%s answered %d", what, int(r))
	}
	return nil
}

func open(req *request) (*device, error) {
	// All of these strings live as long as the process.
	if s := C.open_driver(C.CString(req.Libcuda)); s != nil {
		return nil, errors.New(C.GoString(s))
	}
	if s := C.open_loop(C.CString(req.Library)); s != nil {
		return nil, errors.New(C.GoString(s))
	}
	d := &device{}
	var pool, module C.handle
	keep := C.uint64_t(math.MaxUint64)
	for _, step := range []struct {
		what string
		do   func() C.int
	}{
		{"cuInit", func() C.int { return C.cuInit(0) }},
		{"cuDevicePrimaryCtxRetain", func() C.int { return C.cuDevicePrimaryCtxRetain(&d.context, 0) }},
		{"cuCtxSetCurrent", func() C.int { return C.cuCtxSetCurrent(d.context) }},
		// Else each synchronization gives the pool's memory back.
		{"cuDeviceGetMemPool", func() C.int { return C.cuDeviceGetMemPool(&pool, 0) }},
		{"cuMemPoolSetAttribute", func() C.int { return C.cuMemPoolSetAttribute(pool, 4, &keep) }},
		{"cuModuleLoadData", func() C.int { return C.cuModuleLoadData(&module, C.CString(req.Kernel)) }},
		{"cuModuleGetFunction", func() C.int { return C.cuModuleGetFunction(&d.kernel, module, C.CString(req.KernelName)) }},
	} {
		if err := check(step.what, step.do()); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *device) newLane() (*lane, error) {
	l := &lane{device: d, out: (*C.uint64_t)(C.calloc(1, 8))}
	for _, s := range []*C.handle{&l.s, &l.other} {
		if err := check("cuStreamCreateWithPriority", C.cuStreamCreateWithPriority(s, 1, 0)); err != nil {
			return nil, err
		}
	}
	for e, flags := range map[*C.handle]C.uint{&l.e: 2, &l.spare: 2, &l.t: 0, &l.start: 0, &l.end: 0} {
		if err := check("cuEventCreate", C.cuEventCreate(e, flags)); err != nil {
			return nil, err
		}
		if err := check("cuEventRecord", C.cuEventRecord(*e, l.s)); err != nil {
			return nil, err
		}
	}
	if err := check("cuMemAlloc", C.cuMemAlloc_v2(&l.dst, 65536)); err != nil {
		return nil, err
	}
	if err := check("cuMemHostAlloc", C.cuMemHostAlloc(&l.pinned, 65536, 0)); err != nil {
		return nil, err
	}
	return l, l.capture()
}

// capture makes the graph of one empty kernel.
func (l *lane) capture() error {
	if err := check("cuStreamBeginCapture", C.cuStreamBeginCapture_v2(l.s, 2)); err != nil {
		return err
	}
	launched := C.cuLaunchKernel(l.kernel, 1, 1, 1, 1, 1, 1, 0, l.s, 0, 0)
	var g C.handle
	if err := check("cuStreamEndCapture", C.cuStreamEndCapture(l.s, &g)); err != nil {
		return err
	}
	if err := check("cuLaunchKernel", launched); err != nil {
		return err
	}
	return check("cuGraphInstantiateWithFlags", C.cuGraphInstantiateWithFlags(&l.graph, g, 0))
}

// call is the C loop's struct call.
type call struct {
	fn   C.handle
	n    uint32
	load uint32
	arg  [11]uint64
}

// loaded marks the argument that is what an earlier call wrote to out.
const loaded = math.MaxUint64

// call describes a call for the C loop.
func (l *lane) call(symbol string, args ...C.handle) call {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	c := call{fn: C.address_of(name), n: uint32(len(args))}
	for i, a := range args {
		if uint64(a) == loaded {
			a, c.load = l.address(), c.load|1<<i
		}
		c.arg[i] = uint64(a)
	}
	return c
}

func (l *lane) address() C.handle { return C.handle(uintptr(unsafe.Pointer(l.out))) }

func (l *lane) push() call { return l.call("cuCtxPushCurrent_v2", l.context) }
func (l *lane) pop() call  { return l.call("cuCtxPopCurrent_v2", l.address()) }
