package cudatest

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// Kernel is what a kernel does on a simulated GPU: Go functions that stand for
// its code. See [GPU.RegisterKernel].
//
// Both functions run while the GPU is locked: they must not call the driver, nor
// wait for anything, nor end their goroutine, as t.FailNow does.
type Kernel struct {
	// Run does the work of the whole grid, when the launch's turn in its stream
	// has come and its time has passed. Nil does nothing.
	//
	// A panic in it breaks the context with LAUNCH_FAILED, as a trap would, and
	// shows in [GPU.Problems].
	Run func(l *Launch)

	// Time says how long a launch takes. It is called by the launch, before any
	// work in front of it is done, so it can look at the arguments but not at
	// memory. Nil stands for Config.Latency.
	Time func(l *Launch) time.Duration

	// Params are the sizes of the arguments in bytes, for images of machine code,
	// which the simulation cannot read. PTX says it itself.
	Params []int
}

// RegisterKernel makes k what the kernel of that name does, in every module, for
// all processes and from the next launch on. A module's image must contain the
// name if it is PTX; images of machine code are taken to contain every registered
// one. The kernels of the library's own tests, whose names begin with
// "purecuda_", are registered.
func (g *GPU) RegisterKernel(name string, k Kernel) {
	for i, size := range k.Params {
		if size <= 0 {
			panic(fmt.Sprintf("cudatest: kernel %s: parameter %d has the size %d", name, i, size))
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kernels[name] = k
}

// entry is what an image would say of the kernel. A value is aligned to the
// greatest power of two in its size, up to 8.
func (k *Kernel) entry() *entry {
	e := &entry{maxThreads: maxThreads}
	for _, size := range k.Params {
		align := min(size&-size, 8)
		offset := (e.size + align - 1) / align * align
		e.params = append(e.params, param{offset, size})
		e.size = offset + size
	}
	return e
}

// Launch is one launch of a kernel, as its [Kernel] functions see it.
type Launch struct {
	Grid, Block [3]int // in x, y and z
	SharedBytes int    // per block, that the launch asked for
	Cooperative bool   // all blocks run at once

	f       *function
	k       Kernel
	args    []byte
	targets []target // memory that the arguments point to
	running bool
	touched touches
	made    callsite.Site
}

// target is an allocation to which an argument pointed when the launch was
// called. It may have been freed by the time that the kernel runs, in an order
// that allows the use.
type target struct {
	block *block
	data  []byte
}

// Blocks returns the number of blocks of the grid.
func (l *Launch) Blocks() int { return l.Grid[0] * l.Grid[1] * l.Grid[2] }

// Args returns the number of arguments.
func (l *Launch) Args() int { return len(l.f.params) }

// Arg returns the bytes of argument i. They must not be changed.
func (l *Launch) Arg(i int) []byte {
	if i < 0 || i >= len(l.f.params) {
		panic(fmt.Sprintf("cudatest: argument %d of %s, which has %d", i, l.f.name, len(l.f.params)))
	}
	a := l.f.params[i]
	return l.args[a.offset : a.offset+a.size : a.offset+a.size]
}

// Arg returns argument i as a T, which must have the argument's size and no Go
// pointers in it: a number, a [driver.DevicePtr], or a struct of them laid out as
// in C.
func Arg[T any](l *Launch, i int) T {
	var v T
	arg := l.Arg(i)
	if want := int(unsafe.Sizeof(v)); len(arg) != want {
		panic(fmt.Sprintf("cudatest: argument %d of %s has %d bytes, and %T has %d", i, l.f.name, len(arg), v, want))
	}
	plain(v, reflect.TypeFor[T]())
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), len(arg)), arg)
	return v
}

// Memory returns the memory to which argument i points, up to the end of its
// allocation. An address that the kernel's device cannot access, or that is not
// a multiple of T's alignment, ends Run and breaks the context with
// ILLEGAL_ADDRESS or MISALIGNED_ADDRESS, as on a GPU. T must have no Go pointers.
func Memory[T any](l *Launch, i int) []T {
	return MemoryAt[T](l, Arg[driver.DevicePtr](l, i))
}

// MemoryAt is [Memory] for a pointer that is in a struct, or in memory.
func MemoryAt[T any](l *Launch, p driver.DevicePtr) []T {
	m := memoryAt[T](l, p)
	n := uint64(len(m.data)) / sizeOf[T]()
	if n == 0 {
		l.Fail(driver.ErrorIllegalAddress)
	}
	if !m.host() { // the rest of pinned memory may be the CPU's
		l.touch(m, order.Write)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.data))), n)
}

// Elements returns the first n elements of the memory to which argument i points, which
// must be in one allocation, else Run ends as with [Memory]. A kernel that uses it says
// what it touches: a race with what lies behind is not reported, and one in pinned memory is.
// No elements are nil, whatever the argument.
func Elements[T any](l *Launch, i int, n uint64) []T {
	return ElementsAt[T](l, Arg[driver.DevicePtr](l, i), n)
}

// ElementsAt is [Elements] for a pointer that is in a struct, or in memory.
func ElementsAt[T any](l *Launch, p driver.DevicePtr, n uint64) []T {
	return elements[T](l, p, n, order.Write)
}

// Atomics is [Elements] for memory that the kernel accesses by atomic operations only: others
// may do so at the same time, and the CPU may watch it in pinned memory.
func Atomics[T any](l *Launch, i int, n uint64) []T {
	return AtomicsAt[T](l, Arg[driver.DevicePtr](l, i), n)
}

// AtomicsAt is [Atomics] for a pointer that is in a struct, or in memory.
func AtomicsAt[T any](l *Launch, p driver.DevicePtr, n uint64) []T {
	return elements[T](l, p, n, order.Atomic)
}

func elements[T any](l *Launch, p driver.DevicePtr, n uint64, kind order.Kind) []T {
	if n == 0 {
		return nil
	}
	m := memoryAt[T](l, p)
	if n > uint64(len(m.data))/sizeOf[T]() {
		l.Fail(driver.ErrorIllegalAddress)
	}
	m = m.part(0, n*sizeOf[T]())
	l.touch(m, kind)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.data))), n)
}

// memoryAt returns the memory from p to the end of its allocation.
func memoryAt[T any](l *Launch, p driver.DevicePtr) end {
	var v T
	plain(v, reflect.TypeFor[T]())
	m := l.memory(p)
	if uintptr(p)%unsafe.Alignof(v) != 0 {
		l.Fail(driver.ErrorMisalignedAddress)
	}
	return m
}

func sizeOf[T any]() uint64 {
	var v T
	return uint64(unsafe.Sizeof(v))
}

// Fail ends Run and breaks the context with a code, which should be a sticky one
// ([driver.Result.Sticky]): LAUNCH_FAILED is that of a trap.
func (l *Launch) Fail(code driver.Result) {
	if code == driver.Success {
		panic("cudatest: a kernel fails with the code Success")
	}
	panic(kernelFault(code))
}

// kernelFault is what Run panics with to end itself.
type kernelFault driver.Result

// memory returns the memory from p to the end of its allocation, if the kernel
// may access it.
func (l *Launch) memory(p driver.DevicePtr) end {
	if !l.running {
		panic("cudatest: a kernel's memory is there only while its Run runs")
	}
	c := l.f.mod.ctx
	b, data := l.find(uint64(p))
	if b == nil || !c.proc.reaches(c, b) {
		l.Fail(driver.ErrorIllegalAddress)
	}
	from := uint64(p) - b.base
	return end{data[from:], b, from}
}

// find returns the allocation in which addr is, with its bytes.
func (l *Launch) find(addr uint64) (*block, []byte) {
	proc := l.f.mod.ctx.proc
	for _, k := range l.targets {
		if addr-k.block.base < k.block.size && (k.block.data != nil || k.block.chunk.mapped()) {
			return k.block, k.data
		}
	}
	if b := proc.contains(addr); b != nil {
		return b, b.data
	}
	return nil, nil
}

// note remembers the allocations to which words of the arguments point.
func (l *Launch) note() {
	for _, a := range l.f.params {
		for at := a.offset; at+8 <= a.offset+a.size; at += 8 {
			p := binary.NativeEndian.Uint64(l.args[at:])
			if b := l.f.mod.ctx.proc.contains(p); b != nil {
				l.targets = append(l.targets, target{b, b.data})
			}
		}
	}
}

// mapped reports whether the memory is still reserved by its pool.
func (c *chunk) mapped() bool {
	if c == nil {
		return false
	}
	if b := c.pool.proc.begins(c.base); b != nil && b.chunk == c {
		return true
	}
	for _, u := range c.pool.unused {
		if u == c {
			return true
		}
	}
	return false
}

// plain panics if values of type t, which is v's or part of it, have Go pointers
// in them or no bytes at all.
func plain(v any, t reflect.Type) {
	switch {
	case t.Size() == 0, t.Kind() > reflect.Complex128 && t.Kind() != reflect.Array && t.Kind() != reflect.Struct:
		panic(fmt.Sprintf("cudatest: a %T cannot be in a kernel's memory or arguments, because of %v", v, t))
	case t.Kind() == reflect.Array:
		plain(v, t.Elem())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i).Type; f.Size() > 0 {
				plain(v, f)
			}
		}
	}
}
