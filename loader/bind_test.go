//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

// seen reads what the fake library's last call was given.
type seen struct{ word, byteAt uintptr }

func openSeen(t *testing.T, path string) seen {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	word, err := purego.Dlsym(handle, "fake_get_seen")
	require.NoError(t, err)
	byteAt, err := purego.Dlsym(handle, "fake_get_byte")
	require.NoError(t, err)
	return seen{word, byteAt}
}

func (s seen) arg(i int) uint64 {
	f := ccall.Frame{Fn: s.word, Arg: [ccall.MaxArgs]uintptr{0, uintptr(i)}}
	f.CallOut(nil, 0, 1)
	return f.Out[0]
}

func (s seen) text() string {
	var b []byte
	for i := range 128 {
		f := ccall.Frame{Fn: s.byteAt, Arg: [ccall.MaxArgs]uintptr{uintptr(i)}}
		b = append(b, byte(f.Call(nil)))
	}
	return goString(b)
}

func (s seen) bytes() (b [64]byte) {
	for i := range b {
		f := ccall.Frame{Fn: s.byteAt, Arg: [ccall.MaxArgs]uintptr{uintptr(i)}}
		b[i] = byte(f.Call(nil))
	}
	return b
}

// hostMemory gives pointer arguments something to point to.
var hostMemory [16]byte

// argument makes a value of the type with all its bits in use, unlike that of
// any other position, and the 64 bits that C then sees.
func argument(t *testing.T, typ reflect.Type, number, i int) (v reflect.Value, bits uint64) {
	v = reflect.New(typ).Elem()
	n := uint64(number*16 + i)
	switch typ.Kind() {
	case reflect.Int32:
		v.SetInt(-int64(n) - 1)
		bits = uint64(v.Int())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint((0xf0e1d2c3b4a59687 ^ n) & (1<<typ.Bits() - 1))
		bits = v.Uint()
	case reflect.UnsafePointer:
		v.SetPointer(unsafe.Pointer(&hostMemory[i]))
		bits = uint64(v.Pointer())
	case reflect.Array:
		for j := range v.Len() {
			v.Index(j).SetUint(uint64(byte(255 - number - j)))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", n))
	case reflect.Struct:
		for j := range v.NumField() {
			if f := v.Field(j); f.CanSet() {
				w, _ := argument(t, f.Type(), number, j)
				f.Set(w)
			}
		}
	default:
		t.Fatalf("no test value for a parameter of type %v", typ)
	}
	return v, bits
}

// requireOut checks result v against what parameter i wrote.
func requireOut(t *testing.T, p prototype, i int, v reflect.Value) {
	want := p.outValue(i)
	switch v.Kind() {
	case reflect.Int32:
		require.Equal(t, int64(int32(want)), v.Int())
	case reflect.Uint32:
		require.Equal(t, uint64(uint32(want)), v.Uint())
	case reflect.Uint64, reflect.Uintptr:
		require.Equal(t, want, v.Uint())
	case reflect.UnsafePointer:
		require.Equal(t, want, uint64(v.Pointer()))
	case reflect.Float32:
		require.Equal(t, float64(p.number)+0.25, v.Float())
	case reflect.String:
		require.Equal(t, p.symbol, v.String())
	case reflect.Array:
		for j := range v.Len() {
			require.Equal(t, uint64(byte(p.number+j)), v.Index(j).Uint())
		}
	default:
		t.Fatalf("no check for a result of type %v", v.Type())
	}
}

// TestBindings calls every function of the table through a library that was
// compiled from cuda.h's declarations: each argument must arrive where C looks
// for it, and each result come from where C put it.
func TestBindings(t *testing.T) {
	path := fakeLibrary(t, symbols(everything))
	l, err := Open(path)
	require.NoError(t, err)
	require.Empty(t, l.API.Missing)
	require.Equal(t, l.Path, l.API.Source)
	all, got := prototypes(t), openSeen(t, path)
	for _, f := range driver.Functions {
		t.Run(f.Field, func(t *testing.T) {
			p := all[f.Symbol]
			fn := reflect.ValueOf(l.API).Elem().FieldByName(f.Field)
			var args []reflect.Value
			var bits []uint64
			for i := range fn.Type().NumIn() {
				v, b := argument(t, fn.Type().In(i), p.number, i)
				args, bits = append(args, v), append(bits, b)
			}
			results := fn.Call(args)
			require.Equal(t, p.result(), results[len(results)-1].Interface())
			checkCall(t, p, got, args, bits, results[:len(results)-1])
		})
	}
}

// checkCall goes through C's parameters, to which Go's arguments and results
// correspond in order.
func checkCall(t *testing.T, p prototype, got seen, args []reflect.Value, bits []uint64, results []reflect.Value) {
	for i, a := range p.params {
		inOut := a.typ == "CUstreamCaptureMode *"
		switch {
		case a.name == "len":
			require.EqualValues(t, 256, got.arg(i))
		case a.isIPCHandle():
			want := args[0].Convert(reflect.TypeFor[[64]byte]()).Interface()
			require.Equal(t, want, got.bytes())
			args, bits = args[1:], bits[1:]
		case a.typ == "CUhostFn":
			require.NotZero(t, got.arg(i), "the C function")
		case a.typ == "const char *":
			require.Equal(t, args[0].String(), got.text())
			args, bits = args[1:], bits[1:]
		case a.typ == "const CUmemAccessDesc *" || a.typ == "const CUDA_MEMCPY2D *":
			checkFields(t, got, args[0])
			args, bits = args[1:], bits[1:]
		case !a.out() || inOut:
			require.Equal(t, bits[0], got.arg(i), "argument %s", a.name)
			args, bits = args[1:], bits[1:]
		}
		if a.out() {
			requireOut(t, p, i, results[0])
			results = results[1:]
		}
	}
	require.Empty(t, args, "Go has arguments that C has not")
	require.Empty(t, results, "Go has results that C has not")
}

// checkFields checks that C found the fields of a struct where cuda.h has them.
func checkFields(t *testing.T, got seen, v reflect.Value) {
	at := 16
	for j := range v.NumField() {
		f := v.Field(j)
		if !v.Type().Field(j).IsExported() {
			continue
		}
		want := uint64(0)
		switch {
		case f.CanInt():
			want = uint64(f.Int())
		case f.Type() == reflect.TypeFor[driver.MemoryType](): // an enum, which C sees as signed
			want = uint64(int32(f.Uint()))
		default:
			want = f.Uint()
		}
		require.Equal(t, want, got.arg(at), "field %s", v.Type().Field(j).Name)
		at++
	}
}

// TestHostFunc has C call a Go function through the process's one callback.
func TestHostFunc(t *testing.T) {
	path := testlib.Compile(t, "int call(void (*f)(void *), void *data) { f(data); f(data); return 0; }")
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	fn, err := purego.Dlsym(handle, "call")
	require.NoError(t, err)
	calls := 0
	f := driver.NewHostFunc(func() { calls++ })
	purego.SyscallN(fn, hostCallback(), uintptr(f))
	require.Equal(t, 2, calls)
	f.Release()
	purego.SyscallN(fn, hostCallback(), uintptr(f))
	require.Equal(t, 2, calls, "after Release nothing is called")
}

func TestSymbolFallback(t *testing.T) {
	all := prototypes(t)
	elapsed := func(skip string) (string, driver.Result) {
		l, err := Open(fakeLibrary(t, symbols(func(_ driver.Function, symbol string) bool { return symbol != skip })))
		require.NoError(t, err)
		if skip == "cuEventElapsedTime_v2" {
			require.Equal(t, []string{skip}, l.API.Missing)
		} else {
			require.Empty(t, l.API.Missing)
		}
		_, r := l.API.EventElapsedTime(1, 2)
		return l.Path, r
	}
	_, r := elapsed("")
	require.Equal(t, all["cuEventElapsedTime_v2"].result(), r, "the newer of both")
	_, r = elapsed("cuEventElapsedTime_v2")
	require.Equal(t, all["cuEventElapsedTime"].result(), r)
	_, r = elapsed("cuEventElapsedTime")
	require.Equal(t, all["cuEventElapsedTime_v2"].result(), r)
}

func TestOldDriver(t *testing.T) {
	var optional []string
	l, err := Open(fakeLibrary(t, symbols(func(f driver.Function, symbol string) bool {
		if f.Since > driver.Floor && symbol != f.Else {
			optional = append(optional, symbol)
		}
		return f.Required() && (f.Since <= driver.Floor || symbol == f.Else)
	})))
	require.NoError(t, err)
	require.NotEmpty(t, optional)
	require.ElementsMatch(t, optional, l.API.Missing)
	_, r := l.API.StreamGetID(1)
	require.Equal(t, driver.ErrorCallRequiresNewerDriver, r)
	require.ErrorIs(t, r, errors.ErrUnsupported)
}

func TestMissingRequired(t *testing.T) {
	lacks := []string{"cuInit", "cuStreamQuery", "cuEventRecord"}
	path := fakeLibrary(t, symbols(func(_ driver.Function, symbol string) bool {
		return symbol != lacks[0] && symbol != lacks[1] && symbol != lacks[2]
	}))
	for range 2 { // a failure is not kept, nor turned into something else
		l, err := Open(path)
		require.Nil(t, l)
		var missing *driver.MissingError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, lacks, missing.Symbols)
		require.Equal(t, path, missing.Source)
		require.ErrorContains(t, err, path)
		require.NotErrorIs(t, err, ErrNotFound)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestHotCallsDoNotAllocate(t *testing.T) {
	l, err := Open(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	for name, call := range map[string]func(){
		"EventRecord":      func() { l.API.EventRecord(1, 2) },
		"EventQuery":       func() { l.API.EventQuery(1) },
		"EventElapsedTime": func() { l.API.EventElapsedTime(1, 2) },
		"StreamWaitEvent":  func() { l.API.StreamWaitEvent(1, 2, 0) },
		"StreamQuery":      func() { l.API.StreamQuery(1) },
		"LaunchKernel":     func() { l.API.LaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 2, nil, nil) },
		"Memcpy2DAsync":    func() { l.API.Memcpy2DAsync(driver.Memcpy2D{}, 2) },
		"MemFreeAsync":     func() { l.API.MemFreeAsync(1, 2) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, call), name)
	}
}
