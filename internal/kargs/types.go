// Package kargs packs the arguments of a kernel as the driver takes them. What Go
// types can be arguments, and how, is in [Types]; the packed arguments of a launch
// are a [Block].
package kargs

import (
	"fmt"
	"maps"
	"reflect"
	"structs"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// maxParamBytes is how much all parameters of a kernel can have.
const maxParamBytes = 32764

// Types knows how values of Go types become arguments of kernels. M stands for an
// allocation: what must stay as it is while a kernel uses an address in it. Any
// number of goroutines may share a Types.
type Types[M any] struct {
	isMemory func(reflect.Type) bool
	resolve  func(memory any) (M, driver.Use, error)

	known atomic.Pointer[map[unsafe.Pointer]*argType] // by the first word of an any; replaced, not changed
	mu    sync.Mutex                                  // held to replace it
}

// NewTypes returns the Types for which a pointer is memory if isMemory says so of its
// type. Such a pointer, nil or not, is given to resolve, which returns the allocation
// and the bytes whose address the kernel gets, or why there are none.
//
// Neither resolve nor the M that it returns may keep the pointer, for the memory may
// be described by a variable on a goroutine's stack. What an M points to is on the heap.
func NewTypes[M any](isMemory func(reflect.Type) bool, resolve func(memory any) (M, driver.Use, error)) *Types[M] {
	t := &Types[M]{isMemory: isMemory, resolve: resolve}
	t.known.Store(&map[unsafe.Pointer]*argType{})
	return t
}

// argType says how values of a Go type become a kernel's argument.
type argType struct {
	t       reflect.Type
	word    unsafe.Pointer // the first of an any of this type
	direct  bool           // an any of this type holds the value itself, see words
	size    int
	form    form
	spans   []span // bytes that are copied; padding is not
	memory  []memoryField
	address bool // driver.DevicePtr or memory, which can stand for each other
}

// form says what an argument is where that makes it easy.
type form int

const (
	parts form = iota // several values, or a complex number
	bits8
	bits16
	bits32
	bits64
	memory // a pointer to it
)

// copy copies a number. It reports whether it is one.
func (f form) copy(to, from unsafe.Pointer) bool {
	switch f {
	case bits64:
		*(*uint64)(to) = *(*uint64)(from)
	case bits32:
		*(*uint32)(to) = *(*uint32)(from)
	case bits16:
		*(*uint16)(to) = *(*uint16)(from)
	case bits8:
		*(*uint8)(to) = *(*uint8)(from)
	default:
		return false
	}
	return true
}

type span struct{ from, to int }

// memoryField is memory, of which the kernel gets the address.
type memoryField struct {
	at   int
	t    reflect.Type
	path string // where it is in the argument
}

// of returns the argType of arg, or what is wrong with it, as the end of a sentence
// that begins with the argument's number.
func (t *Types[M]) of(arg *any) (a *argType, problem string) {
	if a := (*t.known.Load())[wordsOf(arg).typ]; a != nil {
		return a, ""
	}
	return t.add(*arg)
}

// add derives the type of arg and remembers it.
func (t *Types[M]) add(arg any) (a *argType, problem string) {
	if arg == nil {
		return nil, " is nil: for a null pointer give driver.DevicePtr(0)"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := (*t.known.Load())[wordsOf(&arg).typ]; a != nil { // another was faster
		return a, ""
	}
	if a, problem = newArgType(arg, t.isMemory); problem != "" {
		return nil, problem
	}
	known := maps.Clone(*t.known.Load())
	known[a.word] = a
	t.known.Store(&known)
	return a, ""
}

func newArgType(arg any, isMemory func(reflect.Type) bool) (a *argType, problem string) {
	t := reflect.TypeOf(arg)
	if t.Size() > maxParamBytes {
		return nil, fmt.Sprintf(": %v has %d bytes, and all parameters of a kernel at most %d", t, t.Size(), maxParamBytes)
	}
	d := derivation{argType: argType{t: t, word: wordsOf(&arg).typ, direct: isDirect(t), size: int(t.Size())}, isMemory: isMemory}
	if problem := d.add(t, 0, "", false); problem != "" {
		return nil, problem
	}
	switch {
	case isMemory(t):
		d.form = memory
	case t.Kind() < reflect.Complex64:
		d.form = map[int]form{1: bits8, 2: bits16, 4: bits32, 8: bits64}[d.size]
	}
	d.address = d.form == memory || t == reflect.TypeFor[driver.DevicePtr]()
	return &d.argType, ""
}

// derivation is an argType that is being made.
type derivation struct {
	argType
	isMemory func(reflect.Type) bool
}

// add adds a value of type t at an offset.
func (d *derivation) add(t reflect.Type, at int, path string, inStruct bool) (problem string) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		d.copies(at, int(t.Size()))
		return ""
	case reflect.Complex64, reflect.Complex128:
		if inStruct { // whose other fields and size may lie elsewhere
			return path + fmt.Sprintf(": CUDA aligns complex numbers to their size, and Go a %v to half of it: use an array of two floats, and padding where needed", t)
		}
		d.copies(at, int(t.Size()))
		return ""
	case reflect.Int, reflect.Uint:
		return path + fmt.Sprintf(": %v has no one size in C: convert it, to %v32 or %v64", t, t.Kind(), t.Kind())
	case reflect.Uintptr:
		return path + fmt.Sprintf(": %v may be a number or an address: convert it, to uint64 or driver.DevicePtr", t)
	case reflect.Array:
		if t.Len() == 0 {
			return path + fmt.Sprintf(": %v is empty, which C does not have", t)
		}
		return d.addArray(t, at, path, inStruct)
	case reflect.Struct:
		return d.addStruct(t, at, path)
	case reflect.Pointer:
		if d.isMemory(t) {
			d.memory = append(d.memory, memoryField{at: at, t: t, path: path})
			return ""
		}
		fallthrough
	case reflect.UnsafePointer:
		return path + fmt.Sprintf(": the device cannot follow a %v: give the value itself, a buffer, or a driver.DevicePtr", t)
	default:
		return path + fmt.Sprintf(": a %v cannot be given to a kernel: copy its contents to a buffer", t)
	}
}

func (d *derivation) addArray(t reflect.Type, at int, path string, inStruct bool) (problem string) {
	element, size := t.Elem(), int(t.Elem().Size())
	for i := range t.Len() {
		if problem := d.add(element, at+i*size, fmt.Sprintf("%s[%d]", path, i), inStruct); problem != "" {
			return problem
		}
		if element.Kind() <= reflect.Complex128 { // the others are the same
			d.copies(at+size, (t.Len()-1)*size)
			break
		}
	}
	return ""
}

func (d *derivation) addStruct(t reflect.Type, at int, path string) (problem string) {
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
		if problem := d.add(f.Type, at+int(f.Offset), path+"."+f.Name, true); problem != "" {
			return problem
		}
	}
	if fields == 0 {
		return fmt.Sprintf("%s: %v is empty, which C does not have", path, t)
	}
	return ""
}

// copies adds bytes to the spans.
func (d *derivation) copies(at, size int) {
	if n := len(d.spans); n > 0 && d.spans[n-1].to == at {
		d.spans[n-1].to += size
		return
	}
	d.spans = append(d.spans, span{at, at + size})
}
