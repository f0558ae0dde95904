package kargs

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// A driver before CUDA 12.4 does not tell the parameters. It reads as many as the
// kernel has, of their sizes, wherever the addresses point.
func TestArgumentsOfUnknownSizes(t *testing.T) {
	b := newTypes().NewBlock()
	most := make([]int, spareParams)
	for i := range most {
		most[i] = 8
	}
	for _, n := range []int{2, 0, 1, 2} {
		args := []any{uint64(1), int16(-1)}[:n]
		require.NoError(t, b.Pack(nil, false, args))
		got := read(b, most...)
		for i, want := range [][]byte{{1, 0, 0, 0, 0, 0, 0, 0}, {255, 255, 0, 0, 0, 0, 0, 0}} {
			if i >= n {
				want = make([]byte, 8)
			}
			require.Equal(t, want, got[i])
		}
		for _, a := range got[2:] {
			require.Equal(t, make([]byte, 8), a)
		}
	}
	require.EqualError(t, b.Pack(nil, false, []any{1}), "argument 0: int has no one size in C: convert it, to int32 or int64")

	require.NoError(t, b.Pack(nil, false, []any{[4]uint64{1, 2, 3, 4}, uint32(1 << 31)}))
	require.NoError(t, b.Pack(nil, false, []any{int8(1)}))
	got := read(b, maxParamBytes, maxParamBytes)
	require.Equal(t, append([]byte{1}, make([]byte, maxParamBytes-1)...), got[0])
	require.Equal(t, make([]byte, maxParamBytes), got[1])
}

func TestSet(t *testing.T) {
	x, y, closed := newBuffer[float32](0x1000), newBuffer[int8](0x2000), newBuffer[int8](0x3000)
	closed.in.closed = true
	b := newTypes().NewBlock()
	sizes := []int{8, 4, 40}
	all := withBuffers{1, x, y, [2]*buffer[uint64]{newBuffer[uint64](1), newBuffer[uint64](2)}}
	pack(t, b, sizes, x, float32(1), all)
	before, used := read(b, sizes...), uses(b)
	for _, c := range []struct {
		i    int
		arg  any
		says string
	}{
		{-1, x, "argument -1 of 3"},
		{3, x, "argument 3 of 3"},
		{1, float64(1), "parameter 1 has 4 bytes, and float64, its argument, has 8"},
		{1, uint32(1), "argument 1 was a float32 and cannot become a uint32"},
		{1, myFloat(1), "argument 1 was a float32 and cannot become a kargs.myFloat"},
		{0, uint64(1), "argument 0 was a *kargs.buffer[float32] and cannot become a uint64"},
		{0, (*buffer[int8])(nil), "argument 0: the buffer is nil"},
		{0, closed, "argument 0: already closed"},
		{0, nil, "argument 0 is nil: for a null pointer give driver.DevicePtr(0)"},
		{2, withBuffers{2, x, newBuffer[int8](0x4000), [2]*buffer[uint64]{newBuffer[uint64](1), nil}}, "argument 2.Pair[1]: the buffer is nil"},
	} {
		require.EqualError(t, b.Set(c.i, c.arg), c.says)
		require.Equal(t, before, read(b, sizes...), "a refused Set changed something")
		require.Equal(t, used, uses(b), "a refused Set changed the memory")
	}

	require.NoError(t, b.Set(1, float32(2)))
	require.Equal(t, []byte{0, 0, 0, 0x40}, read(b, sizes...)[1])
	require.NoError(t, b.Set(0, y))
	require.Equal(t, bytesOf(y.at), read(b, sizes...)[0])
	require.Equal(t, []*allocation{y.in}, uses(b)[0])
	require.NoError(t, b.Set(0, driver.DevicePtr(0)))
	require.Equal(t, make([]byte, 8), read(b, sizes...)[0])
	require.Empty(t, uses(b)[0])
	require.EqualError(t, b.Set(0, uint64(1)), "argument 0 was a driver.DevicePtr and cannot become a uint64")
	require.NoError(t, b.Set(0, x))
	require.Equal(t, []*allocation{x.in}, uses(b)[0])
	all.n, all.X = 3, newBuffer[float32](0x5000)
	require.NoError(t, b.Set(2, all))
	require.Equal(t, bytesOf(3, 0x5000, y.at, 1, 2), read(b, sizes...)[2])
	require.Equal(t, []*allocation{all.X.in, y.in, all.Pair[0].in, all.Pair[1].in}, uses(b)[2])
	require.Len(t, b.Holders(), 5)
}

// A block that was used for something else is as good as a new one.
func TestReuse(t *testing.T) {
	types := newTypes()
	reused := types.NewBlock()
	random := rand.New(rand.NewPCG(1, 2))
	grown := 0
	for range 500 {
		var args []any
		for range random.IntN(12) {
			args = append(args, []any{
				uint8(255), int16(-1), random.Float32(), random.Uint64(), complex(1, 2), newBuffer[int8](driver.DevicePtr(random.Uint64())),
				embedding{newBuffer[float32](7), 8}, [50]int16{49: -1}, mixed{a: 255}, nested{W: 3},
			}[random.IntN(10)])
		}
		fresh := types.NewBlock()
		require.NoError(t, fresh.Pack(nil, false, args))
		var params []uint64
		sizes := make([]int, len(args), len(args)+2)
		for i, a := range fresh.args {
			params, sizes[i] = append(params, uint64(a.size)), a.size
		}
		known := random.IntN(2) == 0
		if !known {
			sizes = append(sizes, 8, 4096) // read beyond the end
		}
		values := unsafe.SliceData(reused.values)
		require.NoError(t, reused.Pack(params, known, args))
		if unsafe.SliceData(reused.values) != values {
			grown++
		}
		require.Equal(t, read(fresh, sizes...), read(reused, sizes...))
		require.Equal(t, uses(fresh), uses(reused))
		for i, at := range unsafe.Slice((*uint64)(reused.Params()), len(args)) {
			require.Equal(t, address(&reused.values[reused.args[i].at]), at, "of the block itself")
		}
		require.False(t, slices.ContainsFunc(reused.addrs[len(args):cap(reused.addrs)], func(at uint64) bool { return at != address(&zeros[0]) }))
	}
	require.Less(t, grown, 50)
	require.Zero(t, zeros)
}

// A block keeps the memory among its arguments reachable, and only that.
func TestBlockKeepsItsMemory(t *testing.T) {
	types := newTypes()
	b := types.NewBlock()
	gone := make(chan string, 10)
	watched := func(name string) *buffer[float32] {
		x := newBuffer[float32](1)
		runtime.AddCleanup(x.in, func(name string) { gone <- name }, name)
		return x
	}
	goes := func(names ...string) {
		t.Helper()
		for range 100 {
			runtime.GC()
			select {
			case got := <-gone:
				require.Contains(t, names, got)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		t.Fatalf("%v: kept", names)
	}
	pack(t, b, []int{8, 16}, watched("first"), embedding{watched("second"), 1})
	runtime.GC()
	time.Sleep(10 * time.Millisecond)
	require.Empty(t, gone)
	require.NoError(t, b.Set(0, driver.DevicePtr(0)))
	goes("first")
	b.Reset()
	goes("second")
	pack(t, b, []int{8}, watched("third"))
	require.Error(t, b.Pack(nil, false, []any{watched("fourth"), (*buffer[float32])(nil)}))
	goes("third", "fourth")
	goes("third", "fourth")
}

// launch is as a caller of Launch sees it: what it makes arguments of is its own.
//
//go:noinline
func launch(b *Block[*allocation], params []uint64, args ...any) error {
	err := b.Pack(params, params != nil, args)
	b.Reset()
	return err
}

// Numbers that are arguments need not be allocated by the caller either.
func TestPackingAllocatesNothing(t *testing.T) {
	b := newTypes().NewBlock()
	x := newBuffer[float32](1)
	n := uint64(1000)
	next := func() uint64 { n++; return n }
	for name, c := range map[string]struct {
		params []uint64
		call   func(params []uint64) error
	}{
		"integers": {sizesOf(8, 8, 4, 4, 2, 2, 1, 1, 1), func(params []uint64) error {
			return launch(b, params, next(), int64(next()), uint32(next()), int32(next()),
				uint16(next()), int16(next()), uint8(next()), int8(next()), next()%2 == 0)
		}},
		"floats": {sizesOf(8, 4, 16, 8), func(params []uint64) error {
			return launch(b, params, float64(next()), float32(next()), complex(float64(next()), 1), complex(float32(next()), 1))
		}},
		"memory": {sizesOf(8, 8, 8), func(params []uint64) error {
			return launch(b, params, x, x, driver.DevicePtr(next()))
		}},
		"named": {sizesOf(4, 8), func(params []uint64) error {
			return launch(b, params, myFloat(next()), time.Duration(next()))
		}},
		"structs": {sizesOf(32, 24), func(params []uint64) error {
			return launch(b, params, mixed{B: next()}, nested{W: uint16(next())})
		}},
		"structs with memory": {sizesOf(16, 8), func(params []uint64) error {
			return launch(b, params, embedding{x, next()}, wrapper{x})
		}},
		"array": {sizesOf(24), func(params []uint64) error {
			return launch(b, params, [3]uint64{next(), 2, 3})
		}},
		"sizes not known": {nil, func(params []uint64) error {
			return launch(b, params, x, next(), float32(next()))
		}},
		"set": {nil, func([]uint64) error {
			if err := b.Pack(nil, false, []any{x, next(), embedding{x, 1}}); err != nil {
				return err
			}
			return errors.Join(b.Set(0, x), b.Set(1, next()), b.Set(2, embedding{x, next()}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.call(c.params))
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if err := c.call(c.params); err != nil {
					t.Error(err)
				}
			}))
		})
	}
}

// Arguments, and buffers too, may be on the caller's stack, which moves when a
// function that is called needs more of it.
func TestStackMovesMeanwhile(t *testing.T) {
	depth := 0
	types := NewTypes(isBuffer, func(memory any) (*allocation, driver.Use, error) {
		depth = min(2*depth+1, 20000)
		deep(depth)
		return memory.(anyBuffer).hold()
	})
	for range 100 {
		depth = 0
		done := make(chan struct{})
		go func() { // on a new, small stack
			defer close(done)
			b := types.NewBlock()
			x, y, z := *newBuffer[float32](1), *newBuffer[uint64](2), *newBuffer[int8](3)
			err := b.Pack(nil, false, []any{&x, withBuffers{9, &x, &z, [2]*buffer[uint64]{&y, &y}}, wrapper{&x}, uint64(depth + 5), &y})
			if err != nil {
				t.Error(err)
			}
			runtime.GC()
			got := read(b, 8, 40, 8, 8, 8)
			if string(got[1]) != string(bytesOf(9, 1, 3, 2, 2)) || string(got[2]) != string(bytesOf(1)) ||
				string(got[3]) != string(bytesOf(5)) || string(got[4]) != string(bytesOf(2)) {
				t.Error(got)
			}
			runtime.KeepAlive(b)
		}()
		<-done
	}
}

// deep needs that many frames of stack.
//
//go:noinline
func deep(n int) (sum byte) {
	var frame [64]byte
	if n > 0 {
		frame[n%64] = deep(n - 1)
	}
	return frame[0]
}
