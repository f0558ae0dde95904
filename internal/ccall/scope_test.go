//go:build linux && (amd64 || arm64) && !nocuda

package ccall_test

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/ccall"
)

const (
	context = 0xc0c0c0c0c0c0c0c0
	popped  = 1   // what a pop is noted as
	inside  = 100 // a call that found the stack aligned
)

// scope returns a scope whose pushes and pops answer as told.
func (l library) scope(tb testing.TB, push, pop int) *ccall.Scope {
	f := ccall.Frame{Fn: l.fn(tb, "begin_scope"), Arg: [ccall.MaxArgs]uintptr{uintptr(push), uintptr(pop)}}
	require.Zero(tb, f.Call(nil))
	return &ccall.Scope{Enter: l.fn(tb, "push"), Leave: l.fn(tb, "pop"), Value: context}
}

// calls returns what was called since.
func (l library) calls(tb testing.TB) (calls []uint64) {
	for i := uintptr(0); ; i++ {
		f := ccall.Frame{Fn: l.fn(tb, "get_call"), Arg: [ccall.MaxArgs]uintptr{0, i}}
		require.Zero(tb, f.CallOut(nil, 0, 1))
		if f.Out[0] == 0 {
			return calls
		}
		calls = append(calls, f.Out[0])
	}
}

func TestScope(t *testing.T) {
	l := open(t)
	for _, test := range []struct {
		name               string
		push, answers, pop int
		result             int32
		calls              []uint64
	}{
		{"all well", 0, 0, 0, 0, []uint64{context, inside, popped}},
		{"the call fails", 0, 7, 0, 7, []uint64{context, inside, popped}},
		{"the push fails", 8, 7, 9, 8, []uint64{context}},
		{"the pop fails", 0, 0, 9, 9, []uint64{context, inside, popped}},
		{"the call and the pop fail", 0, -7, 9, -7, []uint64{context, inside, popped}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := l.scope(t, test.push, test.pop)
			f := ccall.Frame{Fn: l.fn(t, "inside"), Arg: [ccall.MaxArgs]uintptr{uintptr(test.answers)}}
			require.Equal(t, test.result, f.Call(in))
			require.Equal(t, test.calls, l.calls(t))

			in = l.scope(t, test.push, test.pop)
			require.Equal(t, test.result, f.CallOut(in, 1, 1))
			require.Equal(t, test.calls, l.calls(t))
			require.Equal(t, len(test.calls) > 1, f.Out[0] == 77)

			in = l.scope(t, test.push, test.pop)
			w := ccall.Wide{Fn: l.fn(t, "inside12"), Arg: [ccall.MaxWideArgs]uintptr{11: uintptr(test.answers)}}
			require.Equal(t, test.result, w.Call(in))
			require.Equal(t, test.calls, l.calls(t))

			in = l.scope(t, test.push, test.pop)
			require.Equal(t, test.result, in.Around(func() int32 {
				f := ccall.Frame{Fn: l.fn(t, "inside"), Arg: [ccall.MaxArgs]uintptr{uintptr(test.answers)}}
				return f.Call(nil)
			}))
			require.Equal(t, test.calls, l.calls(t))
		})
	}
}

// A mode is exchanged for another, and back, by the address of the same word.
func TestScopeByAddress(t *testing.T) {
	l := open(t)
	for _, exchange := range []string{"exchange", "exchange_fails"} {
		in := l.scope(t, 0, 0)
		in.Enter, in.Leave = l.fn(t, exchange), l.fn(t, "exchange")
		in.Value, in.ByAddress = 2, 1
		f := ccall.Frame{Fn: l.fn(t, "inside")}
		r := f.Call(in)
		calls := []uint64{2, inside, 40}
		if exchange == "exchange_fails" {
			require.EqualValues(t, 3, r)
			calls = []uint64{2}
		} else {
			require.Zero(t, r)
		}
		require.Equal(t, calls, l.calls(t))

		begin := ccall.Frame{Fn: l.fn(t, "begin_scope")}
		require.Zero(t, begin.Call(nil))
		require.Equal(t, r, in.Around(func() int32 { return f.Call(nil) }))
		require.Equal(t, calls, l.calls(t))
	}
}

// ways calls inside in a scope, in every way there is.
func (l library) ways(tb testing.TB, answers int) map[string]func(in *ccall.Scope) int32 {
	f := ccall.Frame{Fn: l.fn(tb, "inside"), Arg: [ccall.MaxArgs]uintptr{uintptr(answers)}}
	w := ccall.Wide{Fn: l.fn(tb, "inside12"), Arg: [ccall.MaxWideArgs]uintptr{11: uintptr(answers)}}
	p := ccall.Pair{First: ccall.Frame{Fn: l.fn(tb, "out_nothing")}, Second: f}
	return map[string]func(in *ccall.Scope) int32{
		"Call":   f.Call,
		"Wide":   w.Call,
		"Pair":   p.Call,
		"Around": func(in *ccall.Scope) int32 { return in.Around(func() int32 { return f.Call(nil) }) },
		"CallOut": func(in *ccall.Scope) int32 {
			f := f
			r := f.CallOut(in, 1, 1)
			if f.Out[0] != 77 && f.Out[0] != 0 {
				tb.Errorf("the result is %d", f.Out[0])
			}
			return r
		},
	}
}

func TestLenientScope(t *testing.T) {
	l := open(t)
	for _, test := range []struct {
		enter, leave string
		calls        []uint64
	}{
		{"exchange", "exchange", []uint64{2, inside, 40}},
		{"exchange_fails", "exchange", []uint64{2, inside}},
		{"exchange", "exchange_fails", []uint64{2, inside, 40}},
	} {
		for _, answers := range []int{0, 7} {
			for name, way := range l.ways(t, answers) {
				in := l.scope(t, 0, 0)
				*in = ccall.Scope{Enter: l.fn(t, test.enter), Leave: l.fn(t, test.leave), Value: 2, ByAddress: 1, Lenient: 1}
				require.EqualValues(t, answers, way(in), "%v by %s", test, name)
				require.Equal(t, test.calls, l.calls(t), "%v by %s", test, name)
			}
		}
	}
}

// A mode around a context, and a context around a mode.
func TestScopesNest(t *testing.T) {
	l := open(t)
	for _, test := range []struct {
		name               string
		push, answers, pop int
		exchange           string // what enters the mode
		result             int32
		modeOut, ctxOut    []uint64
	}{
		{"all well", 0, 0, 0, "exchange", 0, []uint64{2, context, inside, popped, 40}, []uint64{context, 2, inside, 40, popped}},
		{"the call fails", 0, 7, 0, "exchange", 7, []uint64{2, context, inside, popped, 40}, []uint64{context, 2, inside, 40, popped}},
		{"the push fails", 8, 7, 9, "exchange", 8, []uint64{2, context, 40}, []uint64{context}},
		{"the pop fails", 0, 0, 9, "exchange", 9, []uint64{2, context, inside, popped, 40}, []uint64{context, 2, inside, 40, popped}},
		{"call and pop fail", 0, -7, 9, "exchange", -7, []uint64{2, context, inside, popped, 40}, []uint64{context, 2, inside, 40, popped}},
		{"the exchange fails", 0, 7, 0, "exchange_fails", 7, []uint64{2, context, inside, popped}, []uint64{context, 2, inside, popped}},
	} {
		for name, way := range l.ways(t, test.answers) {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				mode := ccall.Scope{Enter: l.fn(t, test.exchange), Leave: l.fn(t, "exchange"), Value: 2, ByAddress: 1, Lenient: 1}
				in, outer := l.scope(t, test.push, test.pop), mode
				in.Outer = &outer
				require.Equal(t, test.result, way(in))
				require.Equal(t, test.modeOut, l.calls(t))

				mode.Outer = l.scope(t, test.push, test.pop)
				require.Equal(t, test.result, way(&mode))
				require.Equal(t, test.ctxOut, l.calls(t))
			})
		}
	}
}

func TestArgumentByAddressInScope(t *testing.T) {
	l := open(t)
	in := [3]uint64{7, 1 << 40, 3}
	f := ccall.Frame{Fn: l.fn(t, "by_address"), Arg: [ccall.MaxArgs]uintptr{100}}
	require.EqualValues(t, 110, f.CallIn(l.scope(t, 0, 0), 1, unsafe.Pointer(&in), unsafe.Sizeof(in)))
	require.Equal(t, []uint64{context, popped}, l.calls(t))
}

func TestPair(t *testing.T) {
	l := open(t)
	for _, test := range []struct {
		first, second int
		result        int32
		calls         []uint64
	}{
		{0, 0, 0, []uint64{inside, inside}},
		{0, 5, 5, []uint64{inside, inside}},
		{4, 5, 4, []uint64{inside}},
		{-4, 0, -4, []uint64{inside}},
	} {
		p := ccall.Pair{
			First:  ccall.Frame{Fn: l.fn(t, "inside"), Arg: [ccall.MaxArgs]uintptr{uintptr(test.first)}},
			Second: ccall.Frame{Fn: l.fn(t, "inside"), Arg: [ccall.MaxArgs]uintptr{uintptr(test.second)}},
		}
		in := l.scope(t, 0, 0)
		require.Equal(t, test.result, p.Call(nil))
		require.Equal(t, test.calls, l.calls(t))
		l.scope(t, 0, 0)
		require.Equal(t, test.result, p.Call(in))
		require.Equal(t, append(append([]uint64{context}, test.calls...), popped), l.calls(t))
	}

	args := ccall.Pair{
		First:  ccall.Frame{Fn: l.fn(t, "answer")},
		Second: ccall.Frame{Fn: l.fn(t, "args6"), Arg: [ccall.MaxArgs]uintptr{1, 2, 3, 4, 5, 6}},
	}
	require.EqualValues(t, 1006, args.Call(nil))
	for i := range 6 {
		require.EqualValues(t, i+1, l.seen(t, i))
	}
}

func TestScopesAndPairsAllocateNothing(t *testing.T) {
	l := open(t)
	in, zero := l.scope(t, 0, 0), l.fn(t, "answer")
	in.Enter, in.Leave = l.fn(t, "out_nothing"), l.fn(t, "out_nothing")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p := ccall.Pair{First: ccall.Frame{Fn: zero}, Second: ccall.Frame{Fn: zero}}
		p.Call(in)
	}))
	in.Outer = &ccall.Scope{Enter: in.Enter, Leave: in.Leave}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p := ccall.Pair{First: ccall.Frame{Fn: zero}, Second: ccall.Frame{Fn: zero}}
		p.Call(in)
	}))
}

// descendInScope is descend by calls in a scope.
func descendInScope(fn uintptr, in *ccall.Scope, depth int) bool {
	f := ccall.Frame{Fn: fn, Arg: [ccall.MaxArgs]uintptr{uintptr(depth)}}
	f.CallOut(in, 1, 2)
	if depth > 0 && !descendInScope(fn, in, depth-1) {
		return false
	}
	return f.Out == [2]uint64{uint64(depth) + 1, uint64(depth) + 2}
}

func TestMovingStacksInScope(t *testing.T) {
	l := open(t)
	zero := l.fn(t, "out_nothing")
	in, fn := &ccall.Scope{Enter: zero, Leave: zero}, l.fn(t, "out_two_last")
	nested := &ccall.Scope{Enter: zero, Leave: zero, Outer: in}
	var all sync.WaitGroup
	for g := range 8 {
		in := in
		if g%2 != 0 {
			in = nested
		}
		all.Go(func() {
			for i := range 25 {
				right := make(chan bool)
				go func() { right <- descendInScope(fn, in, 100+i) }()
				if !<-right {
					t.Error("wrong results")
				}
				runtime.GC()
			}
		})
	}
	all.Wait()
}
