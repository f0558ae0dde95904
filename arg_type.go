package cuda

import (
	"fmt"
	"reflect"
	"structs"
	"sync"

	"github.com/purecuda/cuda/driver"
)

// argType says how values of a Go type become a kernel's argument.
type argType struct {
	t      reflect.Type
	size   int
	spans  []span // bytes that are copied; padding is not
	memory []memoryField
}

type span struct{ from, to int }

// memoryField is a buffer, of which the kernel gets the address.
type memoryField struct {
	at   int
	t    reflect.Type
	path string // where it is in the argument
}

var argTypes sync.Map // the *argType of each reflect.Type that was used

// argTypeOf returns the argType of t, or what is wrong with it, as the end of a
// sentence about the argument.
func argTypeOf(t reflect.Type) (a *argType, problem string) {
	if a, ok := argTypes.Load(t); ok {
		return a.(*argType), ""
	}
	if t.Size() > maxParamBytes {
		return nil, fmt.Sprintf(": %v has %d bytes, and all parameters of a kernel at most %d", t, t.Size(), maxParamBytes)
	}
	a = &argType{t: t, size: int(t.Size())}
	if problem := a.add(t, 0, "", false); problem != "" {
		return nil, problem
	}
	argTypes.Store(t, a)
	return a, ""
}

// add adds a value of type t at an offset.
func (a *argType) add(t reflect.Type, at int, path string, inStruct bool) (problem string) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		a.copies(at, int(t.Size()))
		return ""
	case reflect.Complex64, reflect.Complex128:
		if inStruct { // whose other fields and size may lie elsewhere
			return path + fmt.Sprintf(": CUDA aligns complex numbers to their size, and Go a %v to half of it: use an array of two floats, and padding where needed", t)
		}
		a.copies(at, int(t.Size()))
		return ""
	case reflect.Int, reflect.Uint:
		return path + fmt.Sprintf(": %v has no one size in C: convert it, to %v32 or %v64", t, t.Kind(), t.Kind())
	case reflect.Uintptr:
		return path + fmt.Sprintf(": %v may be a number or an address: convert it, to uint64 or driver.DevicePtr", t)
	case reflect.Array:
		if t.Len() == 0 {
			return path + fmt.Sprintf(": %v is empty, which C does not have", t)
		}
		return a.addArray(t, at, path, inStruct)
	case reflect.Struct:
		return a.addStruct(t, at, path)
	case reflect.Pointer:
		if isBuffer(t) {
			a.memory = append(a.memory, memoryField{at: at, t: t, path: path})
			return ""
		}
		fallthrough
	case reflect.UnsafePointer:
		return path + fmt.Sprintf(": the device cannot follow a %v: give the value itself, a buffer, or a driver.DevicePtr", t)
	default:
		return path + fmt.Sprintf(": a %v cannot be given to a kernel: copy its contents to a buffer", t)
	}
}

func (a *argType) addArray(t reflect.Type, at int, path string, inStruct bool) (problem string) {
	element, size := t.Elem(), int(t.Elem().Size())
	for i := range t.Len() {
		if problem := a.add(element, at+i*size, fmt.Sprintf("%s[%d]", path, i), inStruct); problem != "" {
			return problem
		}
		if element.Kind() <= reflect.Complex128 { // the others are the same
			a.copies(at+size, (t.Len()-1)*size)
			break
		}
	}
	return ""
}

func (a *argType) addStruct(t reflect.Type, at int, path string) (problem string) {
	fields := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Size() == 0 && (f.Type != reflect.TypeFor[structs.HostLayout]() || i == t.NumField()-1) {
			return fmt.Sprintf("%s.%s: %v is empty, which C does not have", path, f.Name, f.Type)
		}
		if f.Type.Size() == 0 {
			continue
		}
		fields++
		if problem := a.add(f.Type, at+int(f.Offset), path+"."+f.Name, true); problem != "" {
			return problem
		}
	}
	if fields == 0 {
		return fmt.Sprintf("%s: %v is empty, which C does not have", path, t)
	}
	return ""
}

// copies adds bytes to the spans.
func (a *argType) copies(at, size int) {
	if n := len(a.spans); n > 0 && a.spans[n-1].to == at {
		a.spans[n-1].to += size
		return
	}
	a.spans = append(a.spans, span{at, at + size})
}

// isBuffer reports whether t is a *Buffer or *HostBuffer of whatever elements, and
// not a type of someone else that has the methods of an embedded one.
func isBuffer(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[anyMemory]()) &&
		t.Elem().PkgPath() == reflect.TypeFor[Device]().PkgPath()
}

// isAddress reports whether t is for pointers.
func isAddress(t reflect.Type) bool { return t == reflect.TypeFor[driver.DevicePtr]() || isBuffer(t) }
