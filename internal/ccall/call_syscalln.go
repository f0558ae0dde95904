//go:build !nocuda && ((linux && (amd64 || arm64) && purecuda_syscalln) || (windows && amd64))

package ccall

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// frames holds heap frames: purego.SyscallN may grow the goroutine's stack
// before it enters C, so the addresses of results must not point there.
var frames = sync.Pool{New: func() any { return new(Frame) }}

// Call calls f.Fn and returns its int result.
func (f *Frame) Call() int32 {
	h := frames.Get().(*Frame)
	*h = *f
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	frames.Put(h)
	return int32(r)
}

// CallOut is [Frame.Call] for a function that writes n results, 1 or 2, through
// consecutive pointer arguments: Arg[at] becomes the address of Out[0] and
// Arg[at+1] that of Out[1].
func (f *Frame) CallOut(at, n int) int32 {
	h := frames.Get().(*Frame)
	*h = *f
	h.Arg[at] = uintptr(unsafe.Pointer(&h.Out[0]))
	if n == 2 {
		h.Arg[at+1] = uintptr(unsafe.Pointer(&h.Out[1]))
	}
	r, _, _ := purego.SyscallN(h.Fn, h.Arg[:]...)
	f.Out = h.Out
	frames.Put(h)
	return int32(r)
}
