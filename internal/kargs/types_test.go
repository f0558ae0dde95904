package kargs

import (
	"encoding/binary"
	"errors"
	"structs"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

type (
	myFloat float32
	mixed   struct {
		a uint8
		B uint64
		c int16
		_ structs.HostLayout
		D [3]uint8
		e float32
	}
	nested struct {
		X  int8
		In [2]struct {
			y int32
			Z bool
		}
		W uint16
	}
	withBuffers struct {
		n    uint32
		X    *buffer[float32]
		part *buffer[int8]
		Pair [2]*buffer[uint64]
	}
	embedding struct {
		*buffer[float32]
		N uint64
	}
	wrapper struct{ *buffer[float32] } // like a pointer, in an any too
	single  [1]*buffer[int8]
	myPtr   driver.DevicePtr
)

// bytesOf returns words in the order of memory.
func bytesOf(words ...driver.DevicePtr) []byte {
	var b []byte
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, uint64(w))
	}
	return b
}

// Each argument arrives with the bytes that C would give it, padding zero.
func TestArgumentsArriveAsInC(t *testing.T) {
	types := newTypes()
	reused := types.NewBlock()
	x, part, y := newBuffer[float32](0x7f0000001000), newBuffer[int8](0x7f0000002000), newBuffer[uint64](0x7f0000003000)
	for name, c := range map[string]struct {
		arg  any
		want string
	}{
		"bool":       {true, "\x01"},
		"false":      {false, "\x00"},
		"int8":       {int8(-2), "\xfe"},
		"uint8":      {uint8(200), "\xc8"},
		"int16":      {int16(-2), "\xfe\xff"},
		"uint16":     {uint16(0x1234), "\x34\x12"},
		"int32":      {int32(-2), "\xfe\xff\xff\xff"},
		"uint32":     {uint32(0x12345678), "\x78\x56\x34\x12"},
		"int64":      {int64(-2), "\xfe\xff\xff\xff\xff\xff\xff\xff"},
		"uint64":     {uint64(0x0102030405060708), "\x08\x07\x06\x05\x04\x03\x02\x01"},
		"zero":       {uint64(0), "\x00\x00\x00\x00\x00\x00\x00\x00"},
		"float32":    {float32(1), "\x00\x00\x80\x3f"},
		"float64":    {float64(1), "\x00\x00\x00\x00\x00\x00\xf0\x3f"},
		"complex64":  {complex64(1i), "\x00\x00\x00\x00\x00\x00\x80\x3f"},
		"complex128": {complex128(1), "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x00"},
		"named":      {myFloat(1), "\x00\x00\x80\x3f"},
		"duration":   {time.Duration(3), "\x03\x00\x00\x00\x00\x00\x00\x00"},
		"address":    {driver.DevicePtr(0x10), "\x10\x00\x00\x00\x00\x00\x00\x00"},
		"of address": {myPtr(0x10), "\x10\x00\x00\x00\x00\x00\x00\x00"},
		"array":      {[3]uint16{1, 2, 3}, "\x01\x00\x02\x00\x03\x00"},
		"matrix":     {[2][2]int8{{1, 2}, {3, 4}}, "\x01\x02\x03\x04"},
		"complexes":  {[1]complex64{1}, "\x00\x00\x80\x3f\x00\x00\x00\x00"},
		"struct": {mixed{a: 1, B: 2, c: 3, D: [3]uint8{4, 5, 6}, e: 1},
			"\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x04\x05\x06\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x00"},
		"nested": {func() (n nested) {
			n.X, n.In[0].y, n.In[1].y, n.In[1].Z, n.W = 1, 2, 3, true, 4
			return n
		}(), "\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00"},
		"memory":             {x, string(bytesOf(x.at))},
		"memories":           {withBuffers{7, x, part, [2]*buffer[uint64]{y, y}}, string(bytesOf(7, x.at, part.at, y.at, y.at))},
		"embedding":          {embedding{x, 5}, string(bytesOf(x.at, 5))},
		"wrapper":            {wrapper{x}, string(bytesOf(x.at))},
		"single":             {single{part}, string(bytesOf(part.at))},
		"nothing but memory": {[2]wrapper{{x}, {x}}, string(bytesOf(x.at, x.at))},
	} {
		t.Run(name, func(t *testing.T) {
			for _, b := range []*Block[*allocation]{types.NewBlock(), reused, newTypes().NewBlock()} {
				// Between two others, so that a wrong offset shows.
				sizes := []int{1, len(c.want), 8}
				want := [][]byte{{0xaa}, []byte(c.want), {0, 0, 0, 0, 0, 0, 0, 0x80}}
				pack(t, b, sizes, uint8(0xaa), c.arg, uint64(1<<63))
				require.Equal(t, want, read(b, sizes...))
				require.NoError(t, b.Set(1, c.arg))
				require.Equal(t, want, read(b, sizes...))
			}
		})
	}
}

// Padding has whatever was in the memory before; the kernel gets zeros.
func TestPaddingIsZero(t *testing.T) {
	type padded struct {
		A uint8
		B uint32
		C uint8
	}
	var p padded
	for i := range unsafe.Sizeof(p) {
		*(*byte)(unsafe.Add(unsafe.Pointer(&p), i)) = 0xff
	}
	b := newTypes().NewBlock()
	for range 2 {
		pack(t, b, []int{12}, p)
		require.Equal(t, "\xff\x00\x00\x00\xff\xff\xff\xff\xff\x00\x00\x00", string(read(b, 12)[0]))
	}
}

func TestWrongArguments(t *testing.T) {
	x, closed := newBuffer[float32](1), newBuffer[float32](2)
	closed.in.closed = true
	number := 1
	for name, c := range map[string]struct {
		args []any
		says string
	}{
		"none":         {nil, "0 arguments for 2 parameters"},
		"too few":      {[]any{x}, "1 arguments for 2 parameters"},
		"too many":     {[]any{x, float32(1), float32(1)}, "3 arguments for 2 parameters"},
		"too large":    {[]any{x, float64(1)}, "parameter 1 has 4 bytes, and float64, its argument, has 8"},
		"too small":    {[]any{uint32(1), float32(1)}, "parameter 0 has 8 bytes, and uint32, its argument, has 4"},
		"int":          {[]any{x, 1}, "argument 1: int has no one size in C: convert it, to int32 or int64"},
		"uint":         {[]any{x, uint(1)}, "argument 1: uint has no one size in C: convert it, to uint32 or uint64"},
		"uintptr":      {[]any{uintptr(1), float32(1)}, "argument 0: uintptr may be a number or an address: convert it, to uint64 or driver.DevicePtr"},
		"stream":       {[]any{driver.Stream(1), float32(1)}, "argument 0: driver.Stream may be a number or an address: convert it, to uint64 or driver.DevicePtr"},
		"nil":          {[]any{nil, float32(1)}, "argument 0 is nil: for a null pointer give driver.DevicePtr(0)"},
		"pointer":      {[]any{&number, float32(1)}, "argument 0: the device cannot follow a *int: give the value itself, a buffer, or a driver.DevicePtr"},
		"raw pointer":  {[]any{unsafe.Pointer(&number), float32(1)}, "argument 0: the device cannot follow a unsafe.Pointer: give the value itself, a buffer, or a driver.DevicePtr"},
		"to a wrapper": {[]any{&embedding{x, 1}, float32(1)}, "argument 0: the device cannot follow a *kargs.embedding: give the value itself, a buffer, or a driver.DevicePtr"},
		"nil wrapper":  {[]any{(*embedding)(nil), float32(1)}, "argument 0: the device cannot follow a *kargs.embedding: give the value itself, a buffer, or a driver.DevicePtr"},
		"string":       {[]any{x, "abc"}, "argument 1: a string cannot be given to a kernel: copy its contents to a buffer"},
		"slice":        {[]any{[]float32{1}, float32(1)}, "argument 0: a []float32 cannot be given to a kernel: copy its contents to a buffer"},
		"map":          {[]any{x, map[int]int{}}, "argument 1: a map[int]int cannot be given to a kernel: copy its contents to a buffer"},
		"func":         {[]any{x, func() {}}, "argument 1: a func() cannot be given to a kernel: copy its contents to a buffer"},
		"chan":         {[]any{x, make(chan int)}, "argument 1: a chan int cannot be given to a kernel: copy its contents to a buffer"},
		"empty struct": {[]any{x, struct{}{}}, "argument 1: struct {} is empty, which C does not have"},
		"empty array":  {[]any{x, [0]int8{}}, "argument 1: [0]int8 is empty, which C does not have"},
		"empty field":  {[]any{x, struct{ A, B [0]int8 }{}}, "argument 1.A: [0]int8 is empty, which C does not have"},
		"layout alone": {[]any{x, struct{ _ structs.HostLayout }{}}, "argument 1._: structs.HostLayout is empty, which C does not have"},
		"layout at end": {[]any{x, struct {
			A int8
			_ structs.HostLayout
		}{}}, "argument 1._: structs.HostLayout is empty, which C does not have"},
		"field int":       {[]any{x, struct{ Up struct{ N [2]int } }{}}, "argument 1.Up.N[0]: int has no one size in C: convert it, to int32 or int64"},
		"field string":    {[]any{x, struct{ s string }{}}, "argument 1.s: a string cannot be given to a kernel: copy its contents to a buffer"},
		"field interface": {[]any{x, struct{ M anyBuffer }{}}, "argument 1.M: a kargs.anyBuffer cannot be given to a kernel: copy its contents to a buffer"},
		"field complex":   {[]any{x, struct{ c [1]complex64 }{}}, "argument 1.c[0]: CUDA aligns complex numbers to their size, and Go a complex64 to half of it: use an array of two floats, and padding where needed"},
		"field pointer":   {[]any{struct{ P *int32 }{}, float32(1)}, "argument 0.P: the device cannot follow a *int32: give the value itself, a buffer, or a driver.DevicePtr"},
		"huge":            {[]any{x, [32765]byte{}}, "argument 1: [32765]uint8 has 32765 bytes, and all parameters of a kernel at most 32764"},
		"nil buffer":      {[]any{(*buffer[int8])(nil), float32(1)}, "argument 0: the buffer is nil"},
		"nil field":       {[]any{struct{ P *buffer[int8] }{}, float32(1)}, "argument 0.P: the buffer is nil"},
		"nil element":     {[]any{single{}, float32(1)}, "argument 0[0]: the buffer is nil"},
		"closed":          {[]any{closed, float32(1)}, "argument 0: already closed"},
		"closed field":    {[]any{wrapper{closed}, float32(1)}, "argument 0.buffer: already closed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTypes().NewBlock()
			for range 2 {
				require.EqualError(t, b.Pack(sizesOf(8, 4), true, c.args), c.says)
				require.Zero(t, b.Len())
				require.Empty(t, b.Holders())
			}
			pack(t, b, []int{8, 4}, x, float32(1))
			require.Equal(t, [][]byte{bytesOf(x.at), {0, 0, 0x80, 0x3f}}, read(b, 8, 4))
		})
	}
}

// What the resolve function has answered can be matched, and is told apart.
func TestMemoryError(t *testing.T) {
	x, closed := newBuffer[float32](1), newBuffer[uint64](2)
	closed.in.closed = true
	err := newTypes().NewBlock().Pack(nil, false, []any{x, withBuffers{X: x, part: newBuffer[int8](1), Pair: [2]*buffer[uint64]{closed, nil}}})
	require.ErrorIs(t, err, errClosed)
	var e *MemoryError
	require.ErrorAs(t, err, &e)
	require.Equal(t, MemoryError{1, ".Pair[0]", errClosed}, *e)
	require.Equal(t, "argument 1.Pair[0]", e.Where())
	require.EqualError(t, err, "argument 1.Pair[0]: already closed")

	require.False(t, errors.As(newTypes().NewBlock().Pack(nil, false, []any{1}), &e), "of no memory")
}

// Goroutines that find new types at the same time lose none.
func TestTypesAreShared(t *testing.T) {
	types := newTypes()
	x := newBuffer[float32](1)
	args := []any{x, uint8(1), int16(1), float32(1), time.Duration(1), embedding{x, 1}, mixed{}, nested{}, [2]bool{}}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			b := types.NewBlock()
			for i := range 100 {
				arg := args[(g+i)%len(args)]
				if err := b.Pack(nil, false, []any{arg, x}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, *types.known.Load(), len(args))
}
