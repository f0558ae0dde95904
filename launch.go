package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Launch enqueues the kernel on s with these arguments (cuLaunchKernel,
// cuLaunchCooperativeKernel), which are copied. It returns at once. s must be a
// stream of the kernel's device.
//
// Arguments must have the sizes of the kernel's parameters:
//
//   - numbers and bools by their exact type: float32 for a float, int32 for an
//     int, and so on, also complex ones. A Go int has no one size in C and is an
//     error, as uint and uintptr are.
//   - *Buffer and *HostBuffer for pointers. The kernel gets the address, and the
//     memory is kept as for a copy: closed before the kernel is done, it is given
//     back afterwards. For a null pointer give driver.DevicePtr(0).
//   - driver.DevicePtr for any other address that the device can use. Nobody looks
//     after its memory.
//   - structs and arrays of all these, exported fields or not. Go and C lay them
//     out alike, but for complex numbers in structs, which are an error.
//
// How many arguments there are, and their sizes, are checked before the driver
// sees anything, from CUDA 12.4 on. Older drivers do not tell what a kernel
// takes; there, a wrong argument gives the kernel wrong values, and one that is
// missing zeros.
//
// What a kernel does with an address is its own affair. One that is not the
// device's, such as that of another device's buffer without access to it
// ([Device.EnablePeerAccess]), makes the kernel fail with
// driver.ErrorIllegalAddress, and the device is lost to the process.
func (k *Kernel) Launch(s *Stream, c LaunchConfig, args ...any) error {
	p, err := k.prepare("kernel launch", args)
	if err != nil {
		return err
	}
	return p.Launch(s, c)
}

// Prepare checks and packs the arguments as [Kernel.Launch] does, for launches
// without that work.
func (k *Kernel) Prepare(args ...any) (*PreparedKernel, error) {
	return k.prepare("kernel prepare", args)
}

// PreparedKernel is a kernel with its arguments. It keeps buffers among them
// reachable, but does not keep them open. It needs no Close.
type PreparedKernel struct {
	k *Kernel
	pack
}

// Launch enqueues the kernel on s, see [Kernel.Launch]. It allocates nothing and
// waits for no lock, but for the first use of a buffer on a stream that is not its
// home. Any number of goroutines may launch at once, on the same stream
// or on several; but not during a call of Set.
func (p *PreparedKernel) Launch(s *Stream, c LaunchConfig) error {
	const op = "kernel launch"
	if p == nil || p.k == nil {
		return invalid(op, "the kernel is nil")
	}
	k := p.k
	n, problem := c.shape()
	if problem != "" {
		return k.invalid(op, problem)
	}
	if err := s.acquire(op); err != nil {
		return err
	}
	err := k.acquire(op)
	if err == nil {
		err = p.launch(op, s, n, c.Cooperative)
		k.m.h.release()
	}
	s.h.release()
	return err
}

// launch is Launch while the stream and the module are held.
func (p *PreparedKernel) launch(op string, s *Stream, n shape, cooperative bool) error {
	k := p.k
	if s.dev != k.m.h.dev {
		return k.mismatch(op, s.dev)
	}
	held := p.acquire()
	if held < len(p.uses) {
		p.release(held)
		return &Error{Op: op, Err: ErrClosed, Detail: fmt.Sprintf("kernel %s: a buffer of argument %d", k.name, p.uses[held].arg)}
	}
	in := s.capture()
	r := k.enqueue(s.h, n, cooperative, unsafe.Pointer(unsafe.SliceData(p.block)))
	runtime.KeepAlive(p)
	if r == driver.Success {
		s.h.effects.note() // it may print
		for i := range p.uses {
			p.uses[i].h.usedOn(s, in)
		}
		k.m.h.usedOn(s, in) // a graph needs the module too
	}
	p.release(held)
	if r != driver.Success {
		return k.launchFailed(op, n, r)
	}
	return nil
}

func (k *Kernel) enqueue(h *handle, n shape, cooperative bool, params unsafe.Pointer) driver.Result {
	if h.native != 0 && !cooperative && h.dev.driver.captures.active.Load() == 0 { // as onStream, for speed
		r := h.dev.driver.api.LaunchKernel(k.native, n.grid[0], n.grid[1], n.grid[2],
			n.block[0], n.block[1], n.block[2], n.shared, driver.Stream(h.native), params, nil)
		if r != driver.ErrorInvalidContext {
			return r
		}
	}
	return h.onStream(func(api *driver.API, st driver.Stream) driver.Result {
		if cooperative {
			return api.LaunchCooperativeKernel(k.native, n.grid[0], n.grid[1], n.grid[2],
				n.block[0], n.block[1], n.block[2], n.shared, st, params)
		}
		return api.LaunchKernel(k.native, n.grid[0], n.grid[1], n.grid[2],
			n.block[0], n.block[1], n.block[2], n.shared, st, params, nil)
	})
}

// Set replaces argument i, counted from 0, for the launches from now on. It must
// be of the same type; buffers of all kinds and driver.DevicePtr can stand for
// each other. Launches that have returned keep what they got. No other goroutine
// may launch p, or set an argument, during the call.
func (p *PreparedKernel) Set(i int, arg any) error {
	const op = "kernel argument"
	if p == nil || p.k == nil {
		return invalid(op, "the kernel is nil")
	}
	if err := p.k.acquire(op); err != nil {
		return err
	}
	defer p.k.m.h.release()
	if i < 0 || i >= len(p.args) {
		return p.k.invalid(op, fmt.Sprintf("argument %d of %d", i, len(p.args)))
	}
	return p.k.set(op, &p.pack, i, arg)
}

func (k *Kernel) mismatch(op string, stream *Device) error {
	kernel := k.m.h.dev
	if kernel.driver != stream.driver {
		return twoDrivers(op)
	}
	return &Error{Op: op, Err: ErrDeviceMismatch,
		Detail: fmt.Sprintf("kernel %s is of device %d, the stream of device %d", k.name, kernel.index, stream.index)}
}

// launchFailed says what the driver does not: which limit a launch has passed.
func (k *Kernel) launchFailed(op string, n shape, r driver.Result) error {
	e := k.failure(op, r)
	switch r {
	case driver.ErrorInvalidValue, driver.ErrorLaunchOutOfResources:
		e.Detail = joinDetails(e.Detail, k.limits(n))
	case driver.ErrorCooperativeLaunchTooLarge:
		e.Detail = joinDetails(e.Detail, k.room(n))
	}
	return e
}

func (k *Kernel) limits(n shape) string {
	threads, r := k.attribute(driver.FuncMaxThreadsPerBlock)
	if r != driver.Success {
		return ""
	}
	shared, r := k.attribute(driver.FuncMaxDynamicSharedBytes)
	if r != driver.Success {
		return ""
	}
	return fmt.Sprintf("the grid has %v blocks of %v threads with %d bytes of dynamic shared memory each;"+
		" blocks of this kernel can have up to %d threads and %d bytes",
		n.grid, n.block, n.shared, threads, shared)
}

func (k *Kernel) room(n shape) string {
	threads := uint64(n.block[0]) * uint64(n.block[1]) * uint64(n.block[2]) // few: the driver has looked at it
	each, r := k.maxActiveBlocks(int32(threads), uint64(n.shared))
	if r != driver.Success {
		return ""
	}
	processors, err := k.m.h.dev.Attribute(driver.AttributeMultiprocessorCount)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d blocks of %v threads fit on the device at once, the grid has %v", each*processors, n.block, n.grid)
}
