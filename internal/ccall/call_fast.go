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

// trampolineAddr and wideTrampolineAddr are the addresses of the assembly
// routines that cgocall runs, for a [Frame] and for a [Wide].
// They are taken in assembly because a Go func value would be that of a wrapper
// for Go's own calling convention.
var trampolineAddr, wideTrampolineAddr uintptr

// Call calls f.Fn and returns its int result.
//
// Nothing may move the stack, where f may stand, between taking the frame's
// address and the C function's return. Stacks grow only in the prologue of a
// function that is not nosplit: Call is nosplit and so is cgocall, up to where
// the goroutine counts as being in a system call. From there on the garbage
// collector leaves the stack where it is. A callback into Go on this thread
// would break that, which is why [Frame] forbids it.
//
//go:nosplit
func (f *Frame) Call() int32 {
	return cgocall(trampolineAddr, unsafe.Pointer(f))
}

// CallOut is [Frame.Call] for a function that writes n results, 1 or 2, through
// consecutive pointer arguments: Arg[at] becomes the address of Out[0] and
// Arg[at+1] that of Out[1].
//
// Those addresses are plain integers that a moving stack would leave behind, so
// they are taken here, in a nosplit function, right before the call.
//
//go:nosplit
func (f *Frame) CallOut(at, n int) int32 {
	f.Arg[at] = uintptr(unsafe.Pointer(&f.Out[0]))
	if n == 2 {
		f.Arg[at+1] = uintptr(unsafe.Pointer(&f.Out[1]))
	}
	return cgocall(trampolineAddr, unsafe.Pointer(f))
}

// CallIn is [Frame.Call] for a function that reads size bytes, at most 128, at
// in, through argument at. They may stand on the goroutine's stack: see CallOut.
//
//go:nosplit
func (f *Frame) CallIn(at int, in unsafe.Pointer, size uintptr) int32 {
	f.Arg[at] = uintptr(in)
	return cgocall(trampolineAddr, unsafe.Pointer(f))
}

// Call calls f.Fn and returns its int result; see [Frame.Call].
//
//go:nosplit
func (f *Wide) Call() int32 {
	return cgocall(wideTrampolineAddr, unsafe.Pointer(f))
}
