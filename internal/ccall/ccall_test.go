//go:build linux && (amd64 || arm64) && !nocuda

package ccall_test

import (
	_ "embed"
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/ccall"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

//go:embed testdata/calls.c
var source string

type library uintptr

func open(tb testing.TB) library {
	tb.Helper()
	handle, err := purego.Dlopen(testlib.Compile(tb, source), purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(tb, err)
	return library(handle)
}

func (l library) fn(tb testing.TB, name string) uintptr {
	tb.Helper()
	fn, err := purego.Dlsym(uintptr(l), name)
	require.NoError(tb, err)
	return fn
}

// seen returns argument i as the last recording function got it.
func (l library) seen(tb testing.TB, i int) uint64 {
	f := ccall.Frame{Fn: l.fn(tb, "get_seen"), Arg: [ccall.MaxArgs]uintptr{0, uintptr(i)}}
	require.Zero(tb, f.CallOut(nil, 0, 1))
	return f.Out[0]
}

func TestArguments(t *testing.T) {
	l := open(t)
	args := [ccall.MaxArgs]uintptr{
		0xf0e1d2c3b4a59687, 1, math.MaxUint64, 0x8000000000000000, 0x00000000ffffffff, 0xdeadbeefcafef00d,
	}
	for n, name := range []string{"args0", "args1", "args2", "args3", "args4", "args5", "args6"} {
		t.Run(name, func(t *testing.T) {
			f := ccall.Frame{Fn: l.fn(t, name)}
			copy(f.Arg[:n], args[:])
			require.EqualValues(t, 1000+n, f.Call(nil))
			for i := range n {
				require.Equal(t, uint64(args[i]), l.seen(t, i), "argument %d", i)
			}
		})
	}
}

func TestWideArguments(t *testing.T) {
	l := open(t)
	f := ccall.Wide{Fn: l.fn(t, "args12")}
	for i := range f.Arg {
		f.Arg[i] = 0xf0e1d2c3b4a59600 + uintptr(i)
	}
	for range 2 { // the frame can be used again
		require.EqualValues(t, 1012, f.Call(nil))
		for i := range f.Arg {
			require.Equal(t, uint64(f.Arg[i]), l.seen(t, i), "argument %d", i)
		}
	}
	f = ccall.Wide{Fn: l.fn(t, "aligned")}
	require.Zero(t, f.Call(nil), "the stack is not aligned as the ABI wants")
}

func TestArgumentByAddress(t *testing.T) {
	l := open(t)
	in := [3]uint64{7, 1 << 40, 3}
	f := ccall.Frame{Fn: l.fn(t, "by_address"), Arg: [ccall.MaxArgs]uintptr{100}}
	require.EqualValues(t, 110, f.CallIn(nil, 1, unsafe.Pointer(&in), unsafe.Sizeof(in)))
	require.EqualValues(t, 1<<40, l.seen(t, 0))
}

func TestNarrowArguments(t *testing.T) {
	l := open(t)
	minus := int32(-5)
	f := ccall.Frame{Fn: l.fn(t, "narrow"), Arg: [ccall.MaxArgs]uintptr{
		uintptr(minus), uintptr(uint8(0xfe)), uintptr(uint16(0xfedc)), uintptr(uint32(0xfedcba98)),
	}}
	require.EqualValues(t, -1, f.Call(nil))
	require.EqualValues(t, -5, int64(l.seen(t, 0)))
	require.EqualValues(t, 0xfe, l.seen(t, 1))
	require.EqualValues(t, 0xfedc, l.seen(t, 2))
	require.EqualValues(t, 0xfedcba98, l.seen(t, 3))
}

func TestResults(t *testing.T) {
	l := open(t)
	for _, want := range []int32{0, 1, -1, 999, math.MaxInt32, math.MinInt32} {
		f := ccall.Frame{Fn: l.fn(t, "answer"), Arg: [ccall.MaxArgs]uintptr{uintptr(want)}}
		require.Equal(t, want, f.Call(nil))
	}
}

func TestOutParameters(t *testing.T) {
	l := open(t)
	const in = 0x0123456789abcdef

	t.Run("first", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_first"), Arg: [ccall.MaxArgs]uintptr{0, in}}
		require.EqualValues(t, 1, f.CallOut(nil, 0, 1))
		require.Equal(t, ^uint64(in), f.Out[0])
	})
	t.Run("last", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_last"), Arg: [ccall.MaxArgs]uintptr{in, 0}}
		require.EqualValues(t, 2, f.CallOut(nil, 1, 1))
		require.Equal(t, ^uint64(in), f.Out[0])
	})
	t.Run("two", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_two")}
		require.EqualValues(t, 3, f.CallOut(nil, 0, 2))
		require.EqualValues(t, -7, *(*int32)(unsafe.Pointer(&f.Out[0])))
		require.EqualValues(t, 0x123456789abcdef0, f.Out[1])
	})
	t.Run("two last", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_two_last"), Arg: [ccall.MaxArgs]uintptr{40}}
		require.EqualValues(t, 40, f.CallOut(nil, 1, 2))
		require.Equal(t, [2]uint64{41, 42}, f.Out)
	})
	t.Run("float", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_float"), Arg: [ccall.MaxArgs]uintptr{0, 5, 4}}
		require.EqualValues(t, 4, f.CallOut(nil, 0, 1))
		require.EqualValues(t, 1.25, *(*float32)(unsafe.Pointer(&f.Out[0])))
	})
	t.Run("in and out", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "in_out")}
		f.Out[0] = 12
		require.EqualValues(t, 12, f.CallOut(nil, 0, 1))
		require.EqualValues(t, -12, *(*int32)(unsafe.Pointer(&f.Out[0])))
	})
	t.Run("the frame can be used again", func(t *testing.T) {
		f := ccall.Frame{Fn: l.fn(t, "out_first")}
		for in := range uintptr(3) {
			f.Arg[1] = in
			f.CallOut(nil, 0, 1)
			require.Equal(t, ^uint64(in), f.Out[0])
		}
	})
}

func TestBuffers(t *testing.T) {
	l := open(t)
	buf := ccall.Buffer(256)
	f := ccall.Frame{Fn: l.fn(t, "fill"), Arg: [ccall.MaxArgs]uintptr{uintptr(unsafe.Pointer(&buf[0])), 255, 3}}
	require.EqualValues(t, 255, f.Call(nil))
	for i, b := range buf[:255] {
		require.Equal(t, byte(3+i), b)
	}
	require.Zero(t, buf[255], "beyond the end")

	buf = ccall.Buffer(16)
	f = ccall.Frame{Fn: l.fn(t, "text"), Arg: [ccall.MaxArgs]uintptr{uintptr(unsafe.Pointer(&buf[0])), 16}}
	require.Zero(t, f.Call(nil))
	require.Equal(t, "a C string\x00\x00\x00\x00\x00\x00", string(buf))
	f = ccall.Frame{Fn: l.fn(t, "length"), Arg: [ccall.MaxArgs]uintptr{uintptr(unsafe.Pointer(&buf[0]))}}
	require.EqualValues(t, 10, f.Call(nil))
	runtime.KeepAlive(buf)
}

func TestStructByValue(t *testing.T) {
	l := open(t)
	var s ccall.Struct64
	sum := 0
	for i := range s.Bytes {
		s.Bytes[i] = byte(200 - i)
		sum += int(s.Bytes[i]) * (i + 1)
	}

	var open func(*uint64, ccall.Struct64) int32
	ccall.Register(&open, l.fn(t, "by_value"))
	var out uint64
	require.EqualValues(t, s.Bytes[63], open(&out, s))
	require.Equal(t, *(*uint64)(unsafe.Pointer(&s.Bytes[0])), out)

	var openFlags func(*uint64, ccall.Struct64, uint32) int32
	ccall.Register(&openFlags, l.fn(t, "by_value_flags"))
	require.EqualValues(t, sum, openFlags(&out, s, 0xfedcba98))
	require.EqualValues(t, 0xfedcba98, out)
}

func TestNoAllocations(t *testing.T) {
	l := open(t)
	zero, two := l.fn(t, "args0"), l.fn(t, "out_two_last")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f := ccall.Frame{Fn: zero}
		f.Call(nil)
	}))
	wide := l.fn(t, "args12")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f := ccall.Wide{Fn: wide}
		f.Call(nil)
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f := ccall.Frame{Fn: two, Arg: [ccall.MaxArgs]uintptr{9}}
		if f.CallOut(nil, 1, 2); f.Out != [2]uint64{10, 11} {
			panic("wrong results")
		}
	}))
}

func BenchmarkCall(b *testing.B) {
	fn := open(b).fn(b, "args0")
	b.ReportAllocs()
	for b.Loop() {
		f := ccall.Frame{Fn: fn}
		f.Call(nil)
	}
}

func BenchmarkCallOut(b *testing.B) {
	fn := open(b).fn(b, "out_two_last")
	b.ReportAllocs()
	for b.Loop() {
		f := ccall.Frame{Fn: fn, Arg: [ccall.MaxArgs]uintptr{9}}
		f.CallOut(nil, 1, 2)
	}
}

func BenchmarkWideCall(b *testing.B) {
	fn := open(b).fn(b, "args12")
	b.ReportAllocs()
	for b.Loop() {
		f := ccall.Wide{Fn: fn}
		f.Call(nil)
	}
}
