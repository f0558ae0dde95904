//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package ccall

import "runtime"

// Around runs f, which makes calls without a scope, in the scope unless that is nil.
// For that it locks the thread, and pushing and popping are calls of their own.
func (s *Scope) Around(f func() int32) int32 {
	if s == nil {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	push := Frame{Fn: s.Push, Arg: [MaxArgs]uintptr{s.Context}}
	if r := push.Call(nil); r != 0 {
		return r
	}
	r := f()
	pop := Frame{Fn: s.Pop}
	if popped := pop.CallOut(nil, 0, 1); r == 0 {
		r = popped
	}
	return r
}
