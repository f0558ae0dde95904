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
	m      *Module
	native driver.Func
	name   string
	// params are the sizes of the parameters in bytes, if known: drivers before
	// CUDA 12.4 do not tell them.
	params []uint64
	known  bool
}

// maxParamBytes is how much all parameters of a kernel can have.
const maxParamBytes = 32764

// Kernel finds a kernel by its name in the image (cuModuleGetFunction). If there
// is none, the error matches [driver.ErrorNotFound].
func (m *Module) Kernel(name string) (*Kernel, error) {
	const op = "kernel lookup"
	if err := m.acquire(op); err != nil {
		return nil, err
	}
	defer m.h.release()
	if name == "" || strings.Contains(name, "\x00") {
		return nil, invalid(op, fmt.Sprintf("there is no kernel of the name %q", name))
	}
	d := m.h.dev
	k := &Kernel{m: m, name: name}
	r := d.bound(func(api *driver.API) (r driver.Result) {
		if k.native, r = api.ModuleGetFunction(m.Handle(), name); r != driver.Success {
			return r
		}
		return k.readParams()
	})
	if r != driver.Success {
		e := k.failure(op, r)
		if r == driver.ErrorNotFound {
			e.Detail += `: not in the module; of C++ functions that are not extern "C" the name in the image is another`
		}
		return nil, e
	}
	return k, nil
}

// readParams asks for one parameter after the other, until there is none.
func (k *Kernel) readParams() driver.Result {
	for i := range uint64(maxParamBytes) {
		_, size, r := k.m.h.dev.driver.api.FuncGetParamInfo(k.native, i)
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
	return k.native
}

// String returns the kernel's name and device.
func (k *Kernel) String() string {
	if k == nil || k.m == nil {
		return "cuda.Kernel(nil)"
	}
	return fmt.Sprintf("cuda.Kernel(device %d, %s)", k.m.h.dev.index, k.name)
}

// Attribute returns an attribute of the kernel, such as its registers per thread
// (cuFuncGetAttribute).
func (k *Kernel) Attribute(a driver.FuncAttribute) (int, error) {
	const op = "kernel attribute"
	if err := k.acquire(op); err != nil {
		return 0, err
	}
	defer k.m.h.release()
	v, r := k.attribute(a)
	if r != driver.Success {
		return 0, k.failure(op, r)
	}
	return v, nil
}

func (k *Kernel) attribute(a driver.FuncAttribute) (int, driver.Result) {
	var v int32
	d := k.m.h.dev
	r := d.call(func(api *driver.API) (r driver.Result) {
		v, r = api.FuncGetAttribute(a, k.native)
		return r
	})
	return int(v), r
}

// SetAttribute sets an attribute for all launches from now on
// (cuFuncSetAttribute). More than 48 KiB of shared memory per block, for example,
// need [driver.FuncMaxDynamicSharedBytes].
func (k *Kernel) SetAttribute(a driver.FuncAttribute, v int) error {
	const op = "kernel attribute"
	if err := k.acquire(op); err != nil {
		return err
	}
	defer k.m.h.release()
	if int64(v) != int64(int32(v)) {
		return invalid(op, fmt.Sprintf("the value %d", v))
	}
	d := k.m.h.dev
	r := d.call(func(api *driver.API) driver.Result { return api.FuncSetAttribute(k.native, a, int32(v)) })
	if r != driver.Success {
		return k.failure(op, r)
	}
	return nil
}

// MaxActiveBlocks returns how many blocks of blockSize threads, each with
// sharedBytes of dynamic shared memory, one multiprocessor runs at once
// (cuOccupancyMaxActiveBlocksPerMultiprocessor); 0 if not even one.
func (k *Kernel) MaxActiveBlocks(blockSize, sharedBytes int) (int, error) {
	const op = "kernel occupancy"
	if err := k.acquire(op); err != nil {
		return 0, err
	}
	defer k.m.h.release()
	if blockSize <= 0 || int64(blockSize) > math.MaxInt32 || sharedBytes < 0 {
		return 0, invalid(op, fmt.Sprintf("blocks of %d threads and %d bytes", blockSize, sharedBytes))
	}
	n, r := k.maxActiveBlocks(int32(blockSize), uint64(sharedBytes))
	if r != driver.Success {
		return 0, k.failure(op, r)
	}
	return n, nil
}

func (k *Kernel) maxActiveBlocks(blockSize int32, sharedBytes uint64) (int, driver.Result) {
	var n int32
	d := k.m.h.dev
	r := d.bound(func(api *driver.API) (r driver.Result) {
		n, r = api.OccupancyMaxActiveBlocksPerMultiprocessor(k.native, blockSize, sharedBytes)
		return r
	})
	return int(n), r
}

// SuggestBlockSize returns a block size in threads with which the device is as
// busy as this kernel can make it, and the number of such blocks that fill it
// (cuOccupancyMaxPotentialBlockSize), where each block has sharedBytes of dynamic
// shared memory.
func (k *Kernel) SuggestBlockSize(sharedBytes int) (gridSize, blockSize int, err error) {
	const op = "kernel occupancy"
	if err := k.acquire(op); err != nil {
		return 0, 0, err
	}
	defer k.m.h.release()
	if sharedBytes < 0 {
		return 0, 0, invalid(op, fmt.Sprintf("blocks of %d bytes", sharedBytes))
	}
	var grid, block int32
	d := k.m.h.dev
	r := d.bound(func(api *driver.API) (r driver.Result) {
		grid, block, r = api.OccupancyMaxPotentialBlockSize(k.native, 0, uint64(sharedBytes), 0)
		return r
	})
	if r != driver.Success {
		return 0, 0, k.failure(op, r)
	}
	return int(grid), int(block), nil
}

// acquire takes a reference to the module, which the caller releases.
func (k *Kernel) acquire(op string) error {
	if k == nil || k.m == nil {
		return invalid(op, "the kernel is nil")
	}
	ok := k.m.h.acquire()
	runtime.KeepAlive(k) // until then a collected module would close its handle
	if !ok {
		return &Error{Op: op, Err: ErrClosed, Detail: "the module of kernel " + k.name}
	}
	return nil
}

// failure is an error of the driver that names the kernel.
func (k *Kernel) failure(op string, r driver.Result) *Error {
	e := failure(op, r).(*Error)
	e.Detail = joinDetails("kernel "+k.name, e.Detail)
	return e
}

// invalid is an error about an argument that names the kernel.
func (k *Kernel) invalid(op, detail string) *Error {
	return &Error{Op: op, Err: ErrInvalid, Detail: "kernel " + k.name + ": " + detail}
}
