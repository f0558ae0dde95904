package drivertest

import (
	"bytes"
	"strings"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// Modules and their functions.

var moduleRows = []row{
	{"driver: a bad image is refused for a reason", 0, badImages},
	{"driver: a module needs a context to be loaded alone", 0, moduleContext},
	{"driver: a function that a module lacks is not found", 0, missingFunction},
	{"driver: occupancy needs a context and is positive", 0, occupancy},
	{"driver: no module is unloaded in a global capture", 0, unloadInGlobal},
}

// load loads an image that must be refused, and returns the compiler's errors.
func (b *bench) load(what string, ptx string, want driver.Result) string {
	b.t.Helper()
	text := make([]byte, 1024)
	options := []driver.JITOption{driver.JITErrorLogBuffer, driver.JITErrorLogBufferSize}
	values := []unsafe.Pointer{hostPointer(text), nil}
	*(*uintptr)(unsafe.Pointer(&values[1])) = uintptr(len(text))
	b.with(0, func() {
		m, r := b.ModuleLoadDataEx(image(ptx), 2, unsafe.Pointer(&options[0]), unsafe.Pointer(&values[0]))
		if r == driver.Success {
			b.ModuleUnload(m)
		}
		b.want("ModuleLoadDataEx of "+what, r, want)
	})
	end := bytes.IndexByte(text, 0)
	equal(b, "length of the log of "+what, uint64(*(*uintptr)(unsafe.Pointer(&values[1]))), uint64(max(end, 0)))
	return string(text[:max(end, 0)])
}

func badImages(b *bench) {
	const good = ".version 6.4\n.target sm_50\n.address_size 64\n.visible .entry name()\n{\n\tret;\n}\n"
	b.load("no image", "garbage \x01\x02\x03 not an image", driver.ErrorInvalidImage)
	b.load("an empty text", "", driver.ErrorInvalidImage)
	b.load("a text of the future", strings.Replace(good, "6.4", "99.0", 1), driver.ErrorUnsupportedPTXVersion)
	b.load("a text for no device", strings.Replace(good, "sm_50", "sm_200", 1), driver.ErrorInvalidPTX)
	log := b.load("a text with an error", strings.Replace(good, "name", "@#$!", 1), driver.ErrorInvalidPTX)
	if !strings.Contains(log, "line 4") {
		b.t.Fatalf("the log of a text with an error in line 4 says %q", log)
	}
	b.with(0, func() {
		m, r := b.ModuleLoadDataEx(image(good), 0, nil, nil)
		b.ok("ModuleLoadDataEx after that", r)
		b.ok("ModuleUnload", b.ModuleUnload(m))
	})
}

func moduleContext(b *bench) {
	m := b.module(0)
	b.bare(func() {
		_, r := b.ModuleLoadDataEx(image(kernels.PTX), 0, nil, nil)
		b.want("ModuleLoadDataEx without a context", r, driver.ErrorInvalidContext)
		f, r := b.ModuleGetFunction(m, "purecuda_fill")
		b.ok("ModuleGetFunction", r)
		n, r := b.FuncGetAttribute(driver.FuncMaxThreadsPerBlock, f)
		b.ok("FuncGetAttribute", r)
		if n < 32 || n > 1024 {
			b.t.Fatalf("the most threads per block: %d", n)
		}
		b.ok("FuncSetAttribute", b.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, 1024))
	})
	var second driver.Module
	b.with(0, func() {
		var r driver.Result
		second, r = b.ModuleLoadDataEx(image(kernels.PTX), 0, nil, nil)
		b.ok("ModuleLoadDataEx of the same image", r)
	})
	b.bare(func() { b.ok("ModuleUnload", b.ModuleUnload(second)) })
}

func missingFunction(b *bench) {
	m := b.module(0)
	for name, want := range map[string]driver.Result{
		"no_such_kernel": driver.ErrorNotFound, "": driver.ErrorInvalidValue, "purecuda_fill": driver.Success,
	} {
		_, r := b.ModuleGetFunction(m, name)
		b.want("ModuleGetFunction of "+name, r, want)
	}
}

func occupancy(b *bench) {
	f := b.fill(0)
	b.bare(func() {
		_, r := b.OccupancyMaxActiveBlocksPerMultiprocessor(f, 256, 0)
		b.want("without a context", r, driver.ErrorInvalidContext)
		_, _, r = b.OccupancyMaxPotentialBlockSize(f, 0, 0, 0)
		b.want("without a context", r, driver.ErrorInvalidContext)
	})
	b.with(0, func() {
		n, r := b.OccupancyMaxActiveBlocksPerMultiprocessor(f, 256, 0)
		b.ok("OccupancyMaxActiveBlocksPerMultiprocessor", r)
		grid, block, r := b.OccupancyMaxPotentialBlockSize(f, 0, 0, 0)
		b.ok("OccupancyMaxPotentialBlockSize", r)
		if n < 1 || grid < 1 || block < 32 || block > 1024 {
			b.t.Fatalf("%d blocks of 256 per multiprocessor; best are %d blocks of %d", n, grid, block)
		}
		_, block, r = b.OccupancyMaxPotentialBlockSize(f, 0, 0, 64)
		b.ok("OccupancyMaxPotentialBlockSize", r)
		if block < 1 || block > 64 {
			b.t.Fatalf("the best block of at most 64 threads has %d", block)
		}
	})
}

func unloadInGlobal(b *bench) {
	s := b.stream(0)
	var m driver.Module
	r := b.capture(s, driver.CaptureModeGlobal, func() {
		var r driver.Result
		m, r = b.ModuleLoadDataEx(image(kernels.PTX), 0, nil, nil)
		b.ok("ModuleLoadDataEx in a capture", r)
		b.capturing("the stream after that", s, driver.CaptureActive)
		b.want("ModuleUnload in a capture", b.ModuleUnload(m), driver.ErrorStreamCaptureUnsupported)
		b.capturing("the stream after that", s, driver.CaptureInvalidated)
	})
	b.want("StreamEndCapture", r, driver.ErrorStreamCaptureInvalidated)
	b.ok("ModuleUnload after it", b.ModuleUnload(m))
}
