//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package ccall

import "runtime"

// Around runs f, which makes calls without a scope, in the scope unless that is nil.
// For that it locks the thread; entering and leaving are calls of their own.
func (s *Scope) Around(f func() int32) int32 {
	if s == nil {
		return f()
	}
	if s.Outer != nil {
		inner := *s
		inner.Outer = nil
		return s.Outer.Around(func() int32 { return inner.Around(f) })
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	frame := Frame{Fn: s.Enter, Arg: [MaxArgs]uintptr{s.Value}, Out: [2]uint64{uint64(s.Value)}}
	enter := frame.Call
	if s.ByAddress != 0 {
		enter = func(in *Scope) int32 { return frame.CallOut(in, 0, 1) }
	}
	if r := enter(nil); r != 0 {
		if s.Lenient != 0 {
			return f()
		}
		return r
	}
	r := f()
	frame.Fn = s.Leave
	if left := frame.CallOut(nil, 0, 1); r == 0 && s.Lenient == 0 {
		r = left
	}
	return r
}
