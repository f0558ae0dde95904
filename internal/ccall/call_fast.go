//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package ccall

import (
	"unsafe"

	_ "github.com/ebitengine/purego" // sets up the C runtime: without it cgocall throws
)

// cgocall runs fn(arg) on the system stack and returns its C int. The runtime
// keeps it open to linkname for packages that call C without cgo.
//
// It is noescape because the frame is not kept: C is done with it, and with the
// addresses in it, when the call returns.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// These are the addresses of the assembly routines that cgocall runs, for a [Frame],
// a [Wide], a [Pair], and any of these in a [Scope]. They are taken in assembly
// because a Go func value would be that of a wrapper for Go's own calling convention.
var trampolineAddr, wideTrampolineAddr, pairTrampolineAddr, scopedTrampolineAddr uintptr

// scoped is what scopedTrampoline gets: the routine for what stands at frame, and the
// context for it.
type scoped struct {
	scope   *Scope
	routine uintptr
	frame   unsafe.Pointer
}

// call runs the routine for what stands at frame, in a scope unless that is nil.
//
//go:nosplit
func call(routine uintptr, frame unsafe.Pointer, in *Scope) int32 {
	if in == nil {
		return cgocall(routine, frame)
	}
	return callScoped(routine, frame, in)
}

//go:nosplit
//go:noinline
func callScoped(routine uintptr, frame unsafe.Pointer, in *Scope) int32 {
	s := scoped{in, routine, frame}
	if in.Outer == nil {
		return cgocall(scopedTrampolineAddr, unsafe.Pointer(&s))
	}
	outer := scoped{in.Outer, scopedTrampolineAddr, unsafe.Pointer(&s)} // what it runs is the routine for s
	return cgocall(scopedTrampolineAddr, unsafe.Pointer(&outer))
}

// Call calls f.Fn, in a scope unless that is nil, and returns its int result.
//
// Nothing may move the stack, where f may stand, between taking the frame's
// address and the C function's return. Stacks grow only in the prologue of a
// function that is not nosplit: Call is nosplit and so is cgocall, up to where
// the goroutine counts as being in a system call. From there on the garbage
// collector leaves the stack where it is. A callback into Go on this thread
// would break that, which is why [Frame] forbids it.
//
//go:nosplit
func (f *Frame) Call(in *Scope) int32 {
	return call(trampolineAddr, unsafe.Pointer(f), in)
}

// CallOut is [Frame.Call] for a function that writes n results, 1 or 2, through
// consecutive pointer arguments: Arg[at] becomes the address of Out[0] and
// Arg[at+1] that of Out[1].
//
// Those addresses are plain integers that a moving stack would leave behind, so
// they are taken here, in a nosplit function, right before the call.
//
//go:nosplit
func (f *Frame) CallOut(in *Scope, at, n int) int32 {
	f.Arg[at] = uintptr(unsafe.Pointer(&f.Out[0]))
	if n == 2 {
		f.Arg[at+1] = uintptr(unsafe.Pointer(&f.Out[1]))
	}
	return call(trampolineAddr, unsafe.Pointer(f), in)
}

// CallIn is [Frame.Call] for a function that reads size bytes, at most 128, at
// p, through argument at. They may stand on the goroutine's stack: see CallOut.
//
//go:nosplit
func (f *Frame) CallIn(in *Scope, at int, p unsafe.Pointer, size uintptr) int32 {
	f.Arg[at] = uintptr(p)
	return call(trampolineAddr, unsafe.Pointer(f), in)
}

// Call calls f.Fn and returns its int result; see [Frame.Call].
//
//go:nosplit
func (f *Wide) Call(in *Scope) int32 {
	return call(wideTrampolineAddr, unsafe.Pointer(f), in)
}

// Call makes both calls, in a scope unless that is nil, and returns the result of the
// last one made; see [Frame.Call].
//
//go:nosplit
func (p *Pair) Call(in *Scope) int32 {
	return call(pairTrampolineAddr, unsafe.Pointer(p), in)
}
