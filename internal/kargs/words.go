package kargs

import (
	"reflect"
	"unsafe"
)

// words are the two of an any: the first is its type's alone, the second is the
// address of the value, or, in an any that is direct, the value, a pointer.
// Reflection keeps to the same, but allocates to give the address.
type words struct{ typ, data unsafe.Pointer }

func wordsOf(arg *any) *words { return (*words)(unsafe.Pointer(arg)) }

// isDirect reports whether an any holds values of type t themselves.
func isDirect(t reflect.Type) bool {
	zero := reflect.Zero(t).Interface()
	return wordsOf(&zero).data == nil
}

// value returns where the value in arg is.
func (a *argType) value(arg *any) unsafe.Pointer {
	if a.direct {
		return unsafe.Pointer(&wordsOf(arg).data)
	}
	return wordsOf(arg).data
}

// unescaped returns args such that the compiler does not see where they go on: to
// functions of which it knows nothing, so that it would have every caller allocate
// every number that it makes an argument of. Nothing may keep what is in them.
func unescaped(args []any) []any {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(args))) // the compiler follows pointers only
	return unsafe.Slice(*(**any)(unsafe.Pointer(&p)), len(args))
}
