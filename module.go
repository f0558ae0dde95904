package cuda

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Module is code on a device, loaded from an image: the kernels of one source
// file, usually. Any number of goroutines may share it.
type Module struct {
	h       *handle
	cleanup runtime.Cleanup
}

// LoadModule loads an image: PTX text, which the driver compiles for the device,
// or a cubin or fatbin, which are compiled already (cuModuleLoadDataEx). The
// image may be changed or dropped afterwards.
//
// It is slow for PTX that the driver has not compiled before, and it blocks until
// all work on the device is done: load what a program needs at its start. What the driver's compiler says against the image
// is in the error's Detail.
func (d *Device) LoadModule(image []byte) (*Module, error) {
	const op = "module load"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if err := checkImage(op, image); err != nil {
		return nil, err
	}
	// The driver is told no length: text ends at a byte 0. The copy is memory of
	// the heap, whatever the caller's is.
	text := make([]byte, len(image)+1)
	copy(text, image)
	log := newJITLog()
	var native driver.Module
	r := d.bound(func(api *driver.API) (r driver.Result) {
		native, r = api.ModuleLoadDataEx(unsafe.Pointer(&text[0]), uint32(len(log.options)),
			unsafe.Pointer(&log.options), unsafe.Pointer(&log.values))
		return r
	})
	runtime.KeepAlive(text)
	runtime.KeepAlive(log)
	if r != driver.Success {
		e := failure(op, r).(*Error)
		e.Detail = joinDetails(log.String(), d.loadHint(r), e.Detail)
		return nil, e
	}
	m := &Module{h: newHandle(d, kindModule, uint64(native))}
	m.cleanup = runtime.AddCleanup(m, (*handle).forget, m.h)
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
		return fmt.Sprintf("the image has nothing for device %d, whose compute capability is %d.%d: compile for it, or to PTX", d.index, major, minor)
	case driver.ErrorJITCompilerNotFound:
		return "the driver's library libnvidia-ptxjitcompiler is not there: install it, or load a cubin"
	case driver.ErrorJITCompilationDisabled:
		return "the environment has CUDA_DISABLE_PTX_JIT or CUDA_DISABLE_JIT set: unset it, or load a cubin"
	}
	return ""
}

// Device returns the device that the module is loaded on.
func (m *Module) Device() *Device {
	if m == nil || m.h == nil {
		return nil
	}
	return m.h.dev
}

// Handle returns the native CUmodule, for as long as m is open and reachable.
func (m *Module) Handle() driver.Module {
	if m == nil || m.h == nil {
		return 0
	}
	return driver.Module(m.h.native)
}

// Close unloads the module (cuModuleUnload), which blocks until all work on the
// device is done. Calls of its kernels on other goroutines run to their end, and
// the last of them unloads it; graphs keep what they were captured with.
// Afterwards its kernels fail with [ErrClosed]. Closing again is nil.
func (m *Module) Close() error {
	if m == nil || m.h == nil {
		return nil
	}
	m.cleanup.Stop()
	return check("module close", m.h.close())
}

// String names the module by device and handle.
func (m *Module) String() string {
	switch {
	case m == nil || m.h == nil:
		return "cuda.Module(nil)"
	case m.h.closed():
		return fmt.Sprintf("cuda.Module(device %d, closed)", m.h.dev.index)
	}
	return fmt.Sprintf("cuda.Module(device %d, %#x)", m.h.dev.index, m.h.native)
}

// acquire takes a reference to the module, which the caller releases.
func (m *Module) acquire(op string) error {
	if m == nil || m.h == nil {
		return invalid(op, "the module is nil")
	}
	ok := m.h.acquire()
	runtime.KeepAlive(m) // until then a collected m would close h
	if !ok {
		return closed(op, "the module")
	}
	return nil
}

// jitLogSize is how much of the compiler's messages is kept.
const jitLogSize = 16 << 10

// jitLog is what ModuleLoadDataEx writes the compiler's messages to. It is one
// piece of memory that points into itself: it must be on the heap, where nothing
// moves, and newJITLog sees to that.
type jitLog struct {
	options      [4]driver.JITOption
	values       [4]uintptr // in C pointers, some of which are numbers
	errors, info [jitLogSize]byte
}

//go:noinline
func newJITLog() *jitLog {
	l := &jitLog{options: [4]driver.JITOption{
		driver.JITErrorLogBuffer, driver.JITErrorLogBufferSize, driver.JITInfoLogBuffer, driver.JITInfoLogBufferSize,
	}}
	l.values = [4]uintptr{
		uintptr(unsafe.Pointer(&l.errors)), jitLogSize, uintptr(unsafe.Pointer(&l.info)), jitLogSize,
	}
	return l
}

// String returns the errors, or the other messages where there are none.
func (l *jitLog) String() string {
	for _, log := range [][]byte{l.errors[:], l.info[:]} {
		text, _, _ := bytes.Cut(log, []byte{0})
		if s := string(bytes.TrimSpace(text)); s != "" {
			return s
		}
	}
	return ""
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
