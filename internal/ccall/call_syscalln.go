//go:build !nocuda && ((linux && (amd64 || arm64) && purecuda_syscalln) || (windows && amd64))

package ccall

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// heapFrame is a frame on the heap: purego.SyscallN may grow the goroutine's
// stack before it enters C, so the addresses of results, and of what a function
// reads, must not point there.
type heapFrame struct {
	Frame
	in [16]uint64
}

var frames = sync.Pool{New: func() any { return new(heapFrame) }}

// Call calls f.Fn and returns its int result.
func (f *Frame) Call() int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	frames.Put(h)
	return int32(r)
}

// CallOut is [Frame.Call] for a function that writes n results, 1 or 2, through
// consecutive pointer arguments: Arg[at] becomes the address of Out[0] and
// Arg[at+1] that of Out[1].
func (f *Frame) CallOut(at, n int) int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	h.Arg[at] = uintptr(unsafe.Pointer(&h.Out[0]))
	if n == 2 {
		h.Arg[at+1] = uintptr(unsafe.Pointer(&h.Out[1]))
	}
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	f.Out = h.Out
	frames.Put(h)
	return int32(r)
}

// CallIn is [Frame.Call] for a function that reads size bytes, at most 128, at
// in, through argument at.
func (f *Frame) CallIn(at int, in unsafe.Pointer, size uintptr) int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&h.in)), unsafe.Sizeof(h.in)), unsafe.Slice((*byte)(in), size))
	h.Arg[at] = uintptr(unsafe.Pointer(&h.in))
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	frames.Put(h)
	return int32(r)
}

var wides = sync.Pool{New: func() any { return new(Wide) }}

// Call calls f.Fn and returns its int result.
func (f *Wide) Call() int32 {
	h := wides.Get().(*Wide)
	*h = *f
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	wides.Put(h)
	return int32(r)
}
