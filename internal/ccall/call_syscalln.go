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

// Call calls f.Fn, in a scope unless that is nil, and returns its int result.
func (f *Frame) Call(in *Scope) int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	r := call(h.Fn, h.Arg[:], in)
	frames.Put(h)
	return r
}

// CallOut is [Frame.Call] for a function that writes n results, 1 or 2, through
// consecutive pointer arguments: Arg[at] becomes the address of Out[0] and
// Arg[at+1] that of Out[1].
func (f *Frame) CallOut(in *Scope, at, n int) int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	h.Arg[at] = uintptr(unsafe.Pointer(&h.Out[0]))
	if n == 2 {
		h.Arg[at+1] = uintptr(unsafe.Pointer(&h.Out[1]))
	}
	r := call(h.Fn, h.Arg[:], in)
	f.Out = h.Out
	frames.Put(h)
	return r
}

// CallIn is [Frame.Call] for a function that reads size bytes, at most 128, at
// p, through argument at.
func (f *Frame) CallIn(in *Scope, at int, p unsafe.Pointer, size uintptr) int32 {
	h := frames.Get().(*heapFrame)
	h.Frame = *f
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&h.in)), unsafe.Sizeof(h.in)), unsafe.Slice((*byte)(p), size))
	h.Arg[at] = uintptr(unsafe.Pointer(&h.in))
	r := call(h.Fn, h.Arg[:], in)
	frames.Put(h)
	return r
}

var wides = sync.Pool{New: func() any { return new(Wide) }}

// Call calls f.Fn and returns its int result; see [Frame.Call].
func (f *Wide) Call(in *Scope) int32 {
	h := wides.Get().(*Wide)
	*h = *f
	r := call(h.Fn, h.Arg[:], in)
	wides.Put(h)
	return r
}

// Call makes both calls, in a scope unless that is nil, and returns the result of the
// last one made; see [Frame.Call].
func (p *Pair) Call(in *Scope) int32 {
	return in.Around(func() int32 {
		if r := p.First.Call(nil); r != 0 {
			return r
		}
		return p.Second.Call(nil)
	})
}

func call(fn uintptr, args []uintptr, in *Scope) int32 {
	return in.Around(func() int32 {
		r, _, _ := purego.SyscallN(fn, args...)
		return int32(r)
	})
}
