package cudatest

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

func TestModules(t *testing.T) {
	bubble(t, func(b *bed) {
		s := b.stream(0, driver.StreamNonBlocking)
		b.gpu.Run(Handle(s), 5*ms)
		var m driver.Module
		require.Equal(t, 5*ms, took(func() { m = b.module(0, kernels.PTX) }), "loading waits for the device")
		f, r := b.ModuleGetFunction(m, "purecuda_empty")
		b.ok(r)
		again, r := b.ModuleGetFunction(m, "purecuda_empty")
		b.ok(r)
		require.Equal(t, f, again)
		spin, r := b.ModuleGetFunction(m, "purecuda_spin")
		b.ok(r)
		require.Contains(t, b.gpu.Problems()[1], "leaked: module")
		b.ok(b.launch(spin, s, ptr(uint64(3e6))))
		require.Equal(t, 3*ms, took(func() { b.ok(b.ModuleUnload(m)) }), "unloading waits, too")
		require.Equal(t, driver.ErrorInvalidHandle, b.launch(f, s))
		require.Equal(t, driver.ErrorInvalidHandle, b.ModuleUnload(m))
		_, r = b.ModuleGetFunction(m, "purecuda_empty")
		require.Equal(t, driver.ErrorInvalidHandle, r)
		require.Contains(t, b.gpu.Problems()[1], "LaunchKernel: function")

		other := b.module(0, ptxHead+".entry unknown() { ret; }")
		_, r = b.ModuleGetFunction(other, "unknown")
		require.Equal(t, driver.ErrorNotFound, r)
		problems := b.gpu.Problems()
		require.Contains(t, problems[len(problems)-1], `no Go function stands for the kernel "unknown": see GPU.RegisterKernel`)
	})
}

func TestModuleLog(t *testing.T) {
	b := newBed(t, Config{DriverVersion: 12000})
	load := func(ptx string, size uintptr) (string, driver.Result) {
		text := make([]byte, 200)
		for i := range text {
			text[i] = 'x'
		}
		options := []driver.JITOption{driver.JITErrorLogBuffer, driver.JITErrorLogBufferSize, 99}
		values := []unsafe.Pointer{at(text), nil, nil}
		*(*uintptr)(unsafe.Pointer(&values[1])) = size
		var r driver.Result
		b.on(0, func() {
			_, r = b.ModuleLoadDataEx(image(ptx), 3, unsafe.Pointer(&options[0]), unsafe.Pointer(&values[0]))
		})
		n := *(*uintptr)(unsafe.Pointer(&values[1]))
		require.EqualValues(t, "\x00x"[:min(2, len(text)-int(n))], text[n:n+2])
		return string(text[:n]), r
	}
	text, r := load("\n.version 8.1", 200)
	require.Equal(t, driver.ErrorUnsupportedPTXVersion, r)
	require.Equal(t, "ptxas application ptx input, line 2; fatal   : Unsupported .version 8.1; current version is '8.0'", text)
	text, _ = load("\n.version 8.1", 6)
	require.Equal(t, "ptxas", text)
	text, r = load("x", 200)
	require.Equal(t, driver.ErrorInvalidImage, r)
	require.Equal(t, "error   : Binary format for key='0', ident='' is not recognized", text)
	text, r = load(ptxHead, 200)
	b.ok(r)
	require.Empty(t, text)
	b.on(0, func() {
		_, r = b.ModuleLoadDataEx(nil, 0, nil, nil)
		require.Equal(t, driver.ErrorInvalidValue, r)
	})
}

func TestMachineCode(t *testing.T) {
	b := newBed(t, Config{})
	s, p := b.stream(0, driver.StreamNonBlocking), b.mem(0, 8)
	b.gpu.RegisterKernel("sized", Kernel{Params: []int{1, 8, 12}, Run: func(l *Launch) { Memory[uint64](l, 1)[0] = uint64(Arg[uint8](l, 0)) }})
	b.gpu.RegisterKernel("unsized", Kernel{})
	require.Panics(t, func() { b.gpu.RegisterKernel("bad", Kernel{Params: []int{0}}) })
	for _, magic := range []string{"\x7fELF", "\x50\xed\x55\xba"} {
		m := b.module(0, magic)
		f, r := b.ModuleGetFunction(m, "sized")
		b.ok(r)
		offset, size, r := b.FuncGetParamInfo(f, 2)
		b.ok(r)
		require.Equal(t, []uint64{16, 12}, []uint64{offset, size})
		b.ok(b.launch(f, s, ptr(uint8(5)), ptr(p), ptr([12]byte{})))
		b.ok(b.StreamSynchronize(s))
		f, r = b.ModuleGetFunction(m, "unsized")
		b.ok(r)
		b.ok(b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, nil, nil))
		require.Equal(t, driver.ErrorInvalidValue, b.launch(f, s, ptr(p)))
		_, r = b.ModuleGetFunction(m, "unregistered")
		require.Equal(t, driver.ErrorNotFound, r)
	}
	problems := b.gpu.Problems()
	require.Contains(t, problems[len(problems)-2], "the image does not tell the arguments of unsized: set Kernel.Params")
}
