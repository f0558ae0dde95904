package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/image"
	"github.com/purecuda/cuda/internal/native"
)

// Module is code on a device, loaded from an image: the kernels of one source
// file, usually. Any number of goroutines may share it.
type Module struct {
	native  *native.Module
	cleanup runtime.Cleanup
}

// LoadModule loads an image: PTX text, which the driver compiles for the device,
// or a cubin or fatbin, which are compiled already (cuModuleLoadDataEx). The
// image may be changed or dropped afterwards.
//
// It is slow for PTX that the driver has not compiled before, and it blocks until
// all work on the device is done: load what a program needs at its start. What the driver's compiler says against the image
// is in the error's Detail.
func (d *Device) LoadModule(code []byte) (*Module, error) {
	const op = "module load"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if err := image.Check(code); err != nil {
		return nil, invalid(op, err.Error())
	}
	// The driver is told no length: text ends at a byte 0. The copy is memory of
	// the heap, whatever the caller's is.
	text := make([]byte, len(code)+1)
	copy(text, code)
	log := image.NewLog()
	count, options, values := log.Options()
	n, err := d.native.LoadModule(unsafe.Pointer(&text[0]), count, options, values)
	runtime.KeepAlive(text)
	runtime.KeepAlive(log)
	if err != nil {
		e := failed(op, err).(*Error)
		e.Detail = joinDetails(log.String(), d.loadHint(e.Code), e.Detail)
		return nil, e
	}
	m := &Module{native: n}
	m.cleanup = runtime.AddCleanup(m, (*native.Module).Forgotten, n)
	return m, nil
}

// loadHint says what to do when an image is refused.
func (d *Device) loadHint(r driver.Result) string {
	switch r {
	case driver.ErrorInvalidImage:
		return "the image is neither PTX text nor a cubin or fatbin, or it is damaged"
	case driver.ErrorUnsupportedPTXVersion:
		return fmt.Sprintf("the PTX is newer than the driver, %s: update the driver, compile with an older toolkit, or load a cubin", d.driver.describe())
	case driver.ErrorNoBinaryForGPU:
		major, minor, err := d.ComputeCapability()
		if err != nil {
			return ""
		}
		return fmt.Sprintf("the image has nothing for device %d, whose compute capability is %d.%d: compile for it, or to PTX", d.native.Index, major, minor)
	case driver.ErrorJITCompilerNotFound:
		return "the driver's library libnvidia-ptxjitcompiler is not there: install it, or load a cubin"
	case driver.ErrorJITCompilationDisabled:
		return "the environment has CUDA_DISABLE_PTX_JIT or CUDA_DISABLE_JIT set: unset it, or load a cubin"
	}
	return ""
}

// Device returns the device that the module is loaded on.
func (m *Module) Device() *Device {
	if !m.usable() {
		return nil
	}
	return deviceOf(m.native.Dev)
}

// Handle returns the native CUmodule, for as long as m is open and reachable.
func (m *Module) Handle() driver.Module {
	if !m.usable() {
		return 0
	}
	return m.native.Native
}

func (m *Module) usable() bool { return m != nil && m.native != nil }

// Close unloads the module (cuModuleUnload), which blocks until all work on the
// device is done. Calls of its kernels on other goroutines run to their end, and
// the last of them unloads it; graphs keep what they were captured with.
// Afterwards its kernels fail with [ErrClosed]. Closing again is nil.
func (m *Module) Close() error {
	if !m.usable() {
		return nil
	}
	m.cleanup.Stop()
	return failed("module close", m.native.Close())
}

// String names the module by device and handle.
func (m *Module) String() string {
	switch {
	case !m.usable():
		return "cuda.Module(nil)"
	case m.native.Closed():
		return fmt.Sprintf("cuda.Module(device %d, closed)", m.native.Dev.Index)
	}
	return fmt.Sprintf("cuda.Module(device %d, %#x)", m.native.Dev.Index, uintptr(m.native.Native))
}

// joinDetails joins what is there of the parts of an error's Detail.
func joinDetails(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, "; ")
}
