package cuda

import (
	"fmt"
	"math"
	"runtime"
	"strings"

	"github.com/purecuda/cuda/driver"
)

// Kernel is a function of a [Module] that devices run in many threads at once:
// __global__ in CUDA C++. It needs no Close and works while its module is open.
// Any number of goroutines may share it.
//
// Launch takes the arguments as they come. For a launch that is repeated, Prepare
// packs them once, and launching allocates nothing.
type Kernel struct {
	m    *Module
	fn   driver.Func
	name string
	// params are the sizes of the parameters in bytes, if known: drivers before
	// CUDA 12.4 do not tell them.
	params []uint64
	known  bool
}

// maxParams is more than any kernel's parameters.
const maxParams = 32764

// Kernel finds a kernel by its name in the image (cuModuleGetFunction). If there
// is none, the error matches [driver.ErrorNotFound].
func (m *Module) Kernel(name string) (*Kernel, error) {
	const op = "kernel lookup"
	if !m.usable() {
		return nil, invalid(op, "the module is nil")
	}
	if err := m.native.Enter(); err != nil {
		return nil, failed(op, err)
	}
	defer m.leave()
	if name == "" || strings.Contains(name, "\x00") {
		return nil, invalid(op, fmt.Sprintf("there is no kernel of the name %q", name))
	}
	k := &Kernel{m: m, name: name}
	fn, r := m.native.API().ModuleGetFunction(m.native.Native, name)
	if r == driver.Success {
		k.fn = fn
		r = k.readParams()
	}
	if r != driver.Success {
		e := k.failed(op, r).(*Error)
		if r == driver.ErrorNotFound {
			e.Detail += `: not in the module; of C++ functions that are not extern "C" the name in the image is another`
		}
		return nil, e
	}
	return k, nil
}

// leave ends a call on the module, which must not be collected during it.
func (m *Module) leave() {
	m.native.Leave()
	runtime.KeepAlive(m)
}

// readParams asks for one parameter after the other, until there is none.
func (k *Kernel) readParams() driver.Result {
	for i := range uint64(maxParams) {
		_, size, r := k.m.native.API().FuncGetParamInfo(k.fn, i)
		switch r {
		case driver.Success:
			k.params = append(k.params, size)
		case driver.ErrorInvalidValue:
			k.known = true
			return driver.Success
		case driver.ErrorCallRequiresNewerDriver, driver.ErrorNotSupported:
			return driver.Success
		default:
			return r
		}
	}
	k.params = nil // no kernel has so many
	return driver.Success
}

// Name returns the kernel's name.
func (k *Kernel) Name() string {
	if k == nil {
		return ""
	}
	return k.name
}

// Module returns the module that the kernel belongs to.
func (k *Kernel) Module() *Module {
	if k == nil {
		return nil
	}
	return k.m
}

// Handle returns the native CUfunction, for as long as the module is open and
// reachable.
func (k *Kernel) Handle() driver.Func {
	if k == nil {
		return 0
	}
	return k.fn
}

// String returns the kernel's name and device.
func (k *Kernel) String() string {
	if k == nil || k.m == nil {
		return "cuda.Kernel(nil)"
	}
	return fmt.Sprintf("cuda.Kernel(device %d, %s)", k.m.native.Dev.Index, k.name)
}

// Attribute returns an attribute of the kernel, such as its registers per thread
// (cuFuncGetAttribute).
func (k *Kernel) Attribute(a driver.FuncAttribute) (int, error) {
	const op = "kernel attribute"
	if err := k.enter(op); err != nil {
		return 0, err
	}
	defer k.m.leave()
	v, r := k.attribute(a)
	if r != driver.Success {
		return 0, k.failed(op, r)
	}
	return v, nil
}

func (k *Kernel) attribute(a driver.FuncAttribute) (int, driver.Result) {
	v, r := k.m.native.API().FuncGetAttribute(a, k.fn)
	return int(v), r
}

// SetAttribute sets an attribute for all launches from now on
// (cuFuncSetAttribute). More than 48 KiB of shared memory per block, for example,
// need [driver.FuncMaxDynamicSharedBytes].
func (k *Kernel) SetAttribute(a driver.FuncAttribute, v int) error {
	const op = "kernel attribute"
	if err := k.enter(op); err != nil {
		return err
	}
	defer k.m.leave()
	if int64(v) != int64(int32(v)) {
		return invalid(op, fmt.Sprintf("the value %d", v))
	}
	return k.failed(op, k.m.native.API().FuncSetAttribute(k.fn, a, int32(v)))
}

// MaxActiveBlocks returns how many blocks of blockSize threads, each with
// sharedBytes of dynamic shared memory, one multiprocessor runs at once
// (cuOccupancyMaxActiveBlocksPerMultiprocessor); 0 if not even one.
func (k *Kernel) MaxActiveBlocks(blockSize, sharedBytes int) (int, error) {
	const op = "kernel occupancy"
	if err := k.enter(op); err != nil {
		return 0, err
	}
	defer k.m.leave()
	if blockSize <= 0 || int64(blockSize) > math.MaxInt32 || sharedBytes < 0 {
		return 0, invalid(op, fmt.Sprintf("blocks of %d threads and %d bytes", blockSize, sharedBytes))
	}
	n, r := k.maxActiveBlocks(int32(blockSize), uint64(sharedBytes))
	if r != driver.Success {
		return 0, k.failed(op, r)
	}
	return n, nil
}

func (k *Kernel) maxActiveBlocks(blockSize int32, sharedBytes uint64) (int, driver.Result) {
	n, r := k.m.native.API().OccupancyMaxActiveBlocksPerMultiprocessor(k.fn, blockSize, sharedBytes)
	return int(n), r
}

// SuggestBlockSize returns a block size in threads with which the device is as
// busy as this kernel can make it, and the number of such blocks that fill it
// (cuOccupancyMaxPotentialBlockSize), where each block has sharedBytes of dynamic
// shared memory.
func (k *Kernel) SuggestBlockSize(sharedBytes int) (gridSize, blockSize int, err error) {
	const op = "kernel occupancy"
	if err := k.enter(op); err != nil {
		return 0, 0, err
	}
	defer k.m.leave()
	if sharedBytes < 0 {
		return 0, 0, invalid(op, fmt.Sprintf("blocks of %d bytes", sharedBytes))
	}
	grid, block, r := k.m.native.API().OccupancyMaxPotentialBlockSize(k.fn, 0, uint64(sharedBytes), 0)
	if r != driver.Success {
		return 0, 0, k.failed(op, r)
	}
	return int(grid), int(block), nil
}

// enter takes a reference to the module, which its leave gives back.
func (k *Kernel) enter(op string) error {
	if !k.usable() {
		return invalid(op, "the kernel is nil")
	}
	if k.m.native.Enter() != nil {
		return k.moduleClosed(op)
	}
	return nil
}

func (k *Kernel) usable() bool { return k != nil && k.m != nil }

func (k *Kernel) moduleClosed(op string) error { return closed(op, "the module of kernel "+k.name) }

// failed is an error of the driver that names the kernel.
func (k *Kernel) failed(op string, r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	e := failed(op, r).(*Error)
	e.Detail = joinDetails("kernel "+k.name, e.Detail)
	return e
}

// invalid is an error about an argument that names the kernel.
func (k *Kernel) invalid(op, detail string) *Error {
	return &Error{Op: op, Err: ErrInvalid, Detail: "kernel " + k.name + ": " + detail}
}
