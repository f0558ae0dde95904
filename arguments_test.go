package cuda_test

import (
	"bytes"
	"encoding/binary"
	"structs"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// cubin is the header of an image of machine code. The simulation takes it to
// contain every registered kernel.
func cubin() []byte { return append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...) }

// packing returns a device, and a kernel with parameters of these sizes that
// shows the arguments of its last launch.
func packing(t *testing.T, version int, sizes ...int) (*cuda.Device, *cuda.Kernel, func() [][]byte) {
	t.Helper()
	gpu := cudatest.New(cudatest.Config{DriverVersion: version})
	t.Cleanup(func() { gpu.Check(t) })
	var got [][]byte
	gpu.RegisterKernel("shown", cudatest.Kernel{Params: sizes, Time: func(l *cudatest.Launch) time.Duration {
		got = nil
		for i := range l.Args() {
			got = append(got, bytes.Clone(l.Arg(i)))
		}
		return 0
	}})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	return d, testgpu.Kernel(t, testgpu.LoadModule(t, d, cubin()), "shown"), func() [][]byte { return got }
}

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
		X    *cuda.Buffer[float32]
		host *cuda.HostBuffer[int8]
		Pair [2]*cuda.Buffer[uint64]
	}
	embedding struct {
		*cuda.Buffer[float32]
		N uint64
	}
)

// Each argument arrives with the bytes that C would give it, padding zero.
func TestArgumentsArriveAsInC(t *testing.T) {
	for name, c := range map[string]struct {
		arg  any
		want string // in hexadecimal order of memory
	}{
		"bool":       {true, "\x01"},
		"int8":       {int8(-2), "\xfe"},
		"uint8":      {uint8(200), "\xc8"},
		"int16":      {int16(-2), "\xfe\xff"},
		"uint16":     {uint16(0x1234), "\x34\x12"},
		"int32":      {int32(-2), "\xfe\xff\xff\xff"},
		"uint32":     {uint32(0x12345678), "\x78\x56\x34\x12"},
		"int64":      {int64(-2), "\xfe\xff\xff\xff\xff\xff\xff\xff"},
		"uint64":     {uint64(0x0102030405060708), "\x08\x07\x06\x05\x04\x03\x02\x01"},
		"float32":    {float32(1), "\x00\x00\x80\x3f"},
		"float64":    {float64(1), "\x00\x00\x00\x00\x00\x00\xf0\x3f"},
		"complex64":  {complex64(1i), "\x00\x00\x00\x00\x00\x00\x80\x3f"},
		"complex128": {complex128(1), "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x00"},
		"named":      {myFloat(1), "\x00\x00\x80\x3f"},
		"duration":   {time.Duration(3), "\x03\x00\x00\x00\x00\x00\x00\x00"},
		"address":    {driver.DevicePtr(0x10), "\x10\x00\x00\x00\x00\x00\x00\x00"},
		"array":      {[3]uint16{1, 2, 3}, "\x01\x00\x02\x00\x03\x00"},
		"matrix":     {[2][2]int8{{1, 2}, {3, 4}}, "\x01\x02\x03\x04"},
		"complexes":  {[1]complex64{1}, "\x00\x00\x80\x3f\x00\x00\x00\x00"},
		"struct": {mixed{a: 1, B: 2, c: 3, D: [3]uint8{4, 5, 6}, e: 1},
			"\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x04\x05\x06\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x00"},
		"nested": {func() (n nested) {
			n.X, n.In[0].y, n.In[1].y, n.In[1].Z, n.W = 1, 2, 3, true, 4
			return n
		}(), "\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			// Between two others, so that a wrong offset shows.
			d, k, got := packing(t, 0, 1, len(c.want), 8)
			require.NoError(t, k.Launch(testgpu.NewStream(t, d, nil), testgpu.OneThread, uint8(0xaa), c.arg, uint64(1<<63)))
			want := [][]byte{{0xaa}, []byte(c.want), {0, 0, 0, 0, 0, 0, 0, 0x80}}
			require.Equal(t, want, got())
		})
	}
}

func TestBuffersArriveAsAddresses(t *testing.T) {
	d, k, got := packing(t, 0, 8, 8, 8, int(unsafe.Sizeof(withBuffers{})), 16)
	s := testgpu.NewStream(t, d, nil)
	x, host, y := testgpu.Alloc[float32](t, d, 100), testgpu.AllocHost[int8](t, d, 100), testgpu.Alloc[uint64](t, d, 100)
	part, err := x.Range(10, 20)
	require.NoError(t, err)
	arg := withBuffers{n: 7, X: part, host: host, Pair: [2]*cuda.Buffer[uint64]{y, y}}
	require.NoError(t, k.Launch(s, testgpu.OneThread, x, host, part, arg, embedding{x, 5}))
	words := func(v ...any) []byte {
		var b bytes.Buffer
		for _, v := range v {
			require.NoError(t, binary.Write(&b, binary.NativeEndian, v))
		}
		return b.Bytes()
	}
	require.Equal(t, [][]byte{
		words(x.Pointer()), words(host.Pointer()), words(x.Pointer() + 40),
		words(uint64(7), part.Pointer(), host.Pointer(), y.Pointer(), y.Pointer()),
		words(x.Pointer(), uint64(5)),
	}, got())
}

func TestWrongArguments(t *testing.T) {
	d, k, got := packing(t, 0, 8, 4)
	s := testgpu.NewStream(t, d, nil)
	x := testgpu.Alloc[float32](t, d, 1)
	gone, err := cuda.Alloc[float32](d, 1)
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	_, other := testgpu.SimulatedDevice(t, nil)
	foreign := testgpu.Alloc[float32](t, other, 1)
	number := 1
	for name, c := range map[string]struct {
		args []any
		err  error
		says string
	}{
		"none":          {nil, cuda.ErrInvalid, "0 arguments for 2 parameters"},
		"too few":       {[]any{x}, cuda.ErrInvalid, "1 arguments for 2"},
		"too many":      {[]any{x, float32(1), float32(1)}, cuda.ErrInvalid, "3 arguments for 2"},
		"too large":     {[]any{x, float64(1)}, cuda.ErrInvalid, "parameter 1 has 4 bytes, and float64, its argument, has 8"},
		"too small":     {[]any{uint32(1), float32(1)}, cuda.ErrInvalid, "parameter 0 has 8 bytes, and uint32"},
		"int":           {[]any{x, 1}, cuda.ErrInvalid, "argument 1: int has no one size in C: convert it, to int32 or int64"},
		"uint":          {[]any{x, uint(1)}, cuda.ErrInvalid, "to uint32 or uint64"},
		"uintptr":       {[]any{uintptr(1), float32(1)}, cuda.ErrInvalid, "argument 0: uintptr may be"},
		"stream":        {[]any{s.Handle(), float32(1)}, cuda.ErrInvalid, "argument 0: driver.Stream may be"},
		"nil":           {[]any{nil, float32(1)}, cuda.ErrInvalid, "argument 0 is nil: for a null pointer give driver.DevicePtr(0)"},
		"nil buffer":    {[]any{(*cuda.Buffer[int8])(nil), float32(1)}, cuda.ErrInvalid, "argument 0: the buffer is nil"},
		"zero buffer":   {[]any{&cuda.Buffer[int8]{}, float32(1)}, cuda.ErrInvalid, "not allocated"},
		"closed buffer": {[]any{gone, float32(1)}, cuda.ErrClosed, "argument 0"},
		"other driver":  {[]any{foreign, float32(1)}, cuda.ErrDeviceMismatch, "two different drivers"},
		"pointer":       {[]any{&number, float32(1)}, cuda.ErrInvalid, "the device cannot follow a *int"},
		"raw pointer":   {[]any{unsafe.Pointer(&number), float32(1)}, cuda.ErrInvalid, "the device cannot follow"},
		"to a wrapper":  {[]any{&embedding{x, 1}, float32(1)}, cuda.ErrInvalid, "the device cannot follow a *cuda_test.embedding"},
		"string":        {[]any{x, "abc"}, cuda.ErrInvalid, "a string cannot be given to a kernel"},
		"slice":         {[]any{[]float32{1}, float32(1)}, cuda.ErrInvalid, "a []float32 cannot"},
		"map":           {[]any{x, map[int]int{}}, cuda.ErrInvalid, "a map[int]int cannot"},
		"func":          {[]any{x, func() {}}, cuda.ErrInvalid, "a func() cannot"},
		"chan":          {[]any{x, make(chan int)}, cuda.ErrInvalid, "a chan int cannot"},
		"empty struct":  {[]any{x, struct{}{}}, cuda.ErrInvalid, "is empty"},
		"empty array":   {[]any{x, [0]int8{}}, cuda.ErrInvalid, "is empty"},
		"empty field":   {[]any{x, struct{ A, B [0]int8 }{}}, cuda.ErrInvalid, "argument 1.A: [0]int8 is empty"},
		"layout at end": {[]any{x, struct {
			A int8
			_ structs.HostLayout
		}{}}, cuda.ErrInvalid, "argument 1._:"},
		"field int":       {[]any{x, struct{ Up struct{ N [2]int } }{}}, cuda.ErrInvalid, "argument 1.Up.N[0]: int has no one size"},
		"field string":    {[]any{x, struct{ s string }{}}, cuda.ErrInvalid, "argument 1.s: a string"},
		"field interface": {[]any{x, struct{ M cuda.Memory[int8] }{}}, cuda.ErrInvalid, "argument 1.M: a cuda.Memory"},
		"field complex":   {[]any{x, struct{ c [1]complex64 }{}}, cuda.ErrInvalid, "argument 1.c[0]: CUDA aligns complex"},
		"field pointer":   {[]any{struct{ P *int32 }{}, float32(1)}, cuda.ErrInvalid, "argument 0.P: the device cannot follow a *int32"},
		"field nil":       {[]any{struct{ P *cuda.Buffer[int8] }{}, float32(1)}, cuda.ErrInvalid, "argument 0.P: the buffer is nil"},
		"huge":            {[]any{x, [32765]byte{}}, cuda.ErrInvalid, "at most 32764"},
	} {
		t.Run(name, func(t *testing.T) {
			_, prepare := k.Prepare(c.args...)
			for _, err := range []error{prepare, k.Launch(s, testgpu.OneThread, c.args...)} {
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, c.says)
				if c.err != cuda.ErrDeviceMismatch {
					require.ErrorContains(t, err, "kernel shown")
				}
			}
		})
	}
	require.Nil(t, got(), "the driver has seen a launch")
}

// A driver before CUDA 12.4 does not tell the parameters. It reads as many as the
// kernel has, of their sizes, wherever the addresses point.
func TestArgumentsOfUnknownSizes(t *testing.T) {
	const most = 512
	sizes := make([]int, most)
	for i := range sizes {
		sizes[i] = 8
	}
	d, k, got := packing(t, 12030, sizes...)
	require.Contains(t, d.Driver().Missing(), "cuFuncGetParamInfo")
	s := testgpu.NewStream(t, d, nil)
	require.NoError(t, k.Launch(s, testgpu.OneThread, uint64(1), int16(-1)))
	require.Len(t, got(), most)
	require.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0}, got()[0])
	require.Equal(t, []byte{255, 255, 0, 0, 0, 0, 0, 0}, got()[1])
	for _, a := range got()[2:] {
		require.Equal(t, make([]byte, 8), a)
	}
	require.NoError(t, k.Launch(s, testgpu.OneThread))
	require.Equal(t, make([]byte, 8), got()[0])
	require.ErrorContains(t, k.Launch(s, testgpu.OneThread, 1), "int has no one size", "what is known without the driver is checked")

	d, k, got = packing(t, 12030, 4096)
	require.NoError(t, k.Launch(testgpu.NewStream(t, d, nil), testgpu.OneThread, int8(1)))
	require.Equal(t, append([]byte{1}, make([]byte, 4095)...), got()[0])
}

func TestSetArgument(t *testing.T) {
	d, k, got := packing(t, 0, 8, 4)
	s := testgpu.NewStream(t, d, nil)
	x, host := testgpu.Alloc[float32](t, d, 1), testgpu.AllocHost[int8](t, d, 1)
	p, err := k.Prepare(x, float32(1))
	require.NoError(t, err)
	launched := func() [][]byte {
		require.NoError(t, p.Launch(s, testgpu.OneThread))
		return got()
	}
	before := launched()

	for _, c := range []struct {
		i    int
		arg  any
		says string
	}{
		{-1, x, "argument -1 of 2"},
		{2, x, "argument 2 of 2"},
		{1, float64(1), "parameter 1 has 4 bytes"},
		{1, uint32(1), "argument 1 was a float32 and cannot become a uint32"},
		{0, uint64(1), "argument 0 was a *cuda.Buffer[float32] and cannot become a uint64"},
		{0, (*cuda.HostBuffer[int8])(nil), "the buffer is nil"},
		{0, nil, "argument 0 is nil"},
	} {
		err := p.Set(c.i, c.arg)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, c.says)
	}
	require.Equal(t, before, launched(), "a refused Set changed something")

	require.NoError(t, p.Set(1, float32(2)))
	require.Equal(t, []byte{0, 0, 0, 0x40}, launched()[1])
	require.NoError(t, p.Set(0, host))
	require.NoError(t, x.Close(), "it is not an argument any more")
	require.Equal(t, binary.NativeEndian.AppendUint64(nil, uint64(host.Pointer())), launched()[0])
	require.NoError(t, p.Set(0, driver.DevicePtr(0)))
	require.NoError(t, host.Close())
	require.Equal(t, make([]byte, 8), launched()[0])
}
