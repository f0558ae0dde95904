// Package ccall makes one C call: a function pointer, up to [MaxArgs] integer
// arguments by the platform's C ABI, an int result, and up to two values that
// the function writes through pointers. Functions with more arguments take a
// [Wide] frame.
//
// On linux/amd64 and linux/arm64 the call goes through a few lines of assembly
// over runtime.cgocall and costs one transition into C, no allocation and no
// lock. Built with the tag purecuda_syscalln, and on windows/amd64, it goes
// through purego.SyscallN. There is no CUDA driver for other platforms, and no
// Call; nor is there one with the tag nocuda, which keeps purego out.
package ccall

// MaxArgs is the greatest number of arguments that a call can have.
const MaxArgs = 6

// Frame is one call. It may stand on the goroutine's stack. The function must
// not call back into Go on the calling thread.
type Frame struct {
	Fn  uintptr
	Arg [MaxArgs]uintptr
	Out [2]uint64 // what the function writes, see CallOut
}

// MaxWideArgs is the greatest number of arguments that a [Wide] call can have.
const MaxWideArgs = 12

// Wide is a call with more arguments than a [Frame] has, some of which C finds
// on the stack. The same rules hold.
type Wide struct {
	Fn  uintptr
	Arg [MaxWideArgs]uintptr
}

// Scope is a state of the calling thread for the time of a call: a current context, or
// a mode. Enter is a C function that gets Value, or the address of a word that has it;
// Leave gets the address of a word, which is the same. If Enter fails, its result is
// the call's and the function is not called; if only Leave does, its result is. In a
// lenient scope the call's result is the function's: if Enter fails, the function is
// called all the same, and Leave is not. It is all one transition into C.
type Scope struct {
	Enter, Leave uintptr
	Value        uintptr
	ByAddress    uintptr // 1 if Enter gets the address
	Lenient      uintptr // 1 if failures of Enter and Leave do not count
	// Outer, unless nil, is entered before this scope, and left after it. Its result
	// counts as that of a function's call would. It has no Outer itself.
	Outer *Scope
}

// Pair is two calls, in one transition into C. The second is made if the first
// returns 0.
type Pair struct {
	First, Second Frame
}
