package cuda

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"sync"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kargs"
	"github.com/purecuda/cuda/internal/native"
)

// Dim3 is a size in up to three dimensions. A Y or Z of zero counts as 1.
type Dim3 struct{ X, Y, Z int }

// LaunchConfig is the shape of a launch. Devices have limits: up to 1024 threads
// per block, and 65535 blocks in Y and in Z, on all of today's.
type LaunchConfig struct {
	Grid  Dim3 // how many blocks
	Block Dim3 // how many threads in each
	// SharedBytes is how much dynamic shared memory each block gets. For more than
	// 48 KiB see [Kernel.SetAttribute].
	SharedBytes int
	// Cooperative runs all blocks at once, so that they can wait for each other. If
	// they do not fit on the device, the launch fails with
	// driver.ErrorCooperativeLaunchTooLarge.
	Cooperative bool
}

// Grid1D returns the shape for at least n threads in blocks of block threads: the
// last block may have threads beyond n, for which the kernel must check.
func Grid1D(n, block int) LaunchConfig {
	c := LaunchConfig{Block: Dim3{X: block}}
	if n > 0 && block > 0 {
		c.Grid.X = (n-1)/block + 1
	}
	return c
}

// shape is c in the driver's types. problem says what these cannot hold, and is "" if all
// is well.
func (c *LaunchConfig) shape() (s native.Shape, problem string) {
	gx, gy, gz := uint64(c.Grid.X), or1(c.Grid.Y), or1(c.Grid.Z)
	bx, by, bz := uint64(c.Block.X), or1(c.Block.Y), or1(c.Block.Z)
	if (gx|gy|gz|bx|by|bz|uint64(c.SharedBytes))>>32 != 0 || gx == 0 || bx == 0 {
		return s, c.problem()
	}
	s.Grid, s.Block = [3]uint32{uint32(gx), uint32(gy), uint32(gz)}, [3]uint32{uint32(bx), uint32(by), uint32(bz)}
	s.Shared, s.Cooperative = uint32(c.SharedBytes), c.Cooperative
	return s, ""
}

func or1(n int) uint64 {
	if n == 0 {
		return 1
	}
	return uint64(n)
}

// problem says what is wrong with a shape.
func (c *LaunchConfig) problem() string {
	for _, size := range [...]struct {
		what string
		Dim3
	}{{"grid", c.Grid}, {"block", c.Block}} {
		for i, v := range [3]int{size.X, size.Y, size.Z} {
			if v < 0 || v == 0 && i == 0 || int64(v) > math.MaxUint32 {
				return fmt.Sprintf("the %s's %c is %d", size.what, "XYZ"[i], v)
			}
		}
	}
	return fmt.Sprintf("%d bytes of shared memory", c.SharedBytes)
}

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
//   - driver.DevicePtr for any other address that the device can use. Its memory
//     is not tracked.
//   - structs and arrays of all these, exported fields or not. Go and C lay them
//     out alike, but for complex numbers in structs, which are an error.
//
// How many arguments there are, and their sizes, are checked before the driver
// sees anything, from CUDA 12.4 on. Older drivers do not tell what a kernel
// takes; there, a wrong argument gives the kernel wrong values, and one that is
// missing zeros.
//
// What a kernel does with an address is not checked. One that is not the
// device's, such as that of another device's buffer without access to it
// ([Device.EnablePeerAccess]), makes the kernel fail with
// driver.ErrorIllegalAddress, and the device is lost to the process.
func (k *Kernel) Launch(s *Stream, c LaunchConfig, args ...any) error {
	const op = "kernel launch"
	if !k.usable() {
		return invalid(op, "the kernel is nil")
	}
	b := blocks.Get().(*kargs.Block[*native.Memory])
	err := k.pack(op, b, args)
	if err == nil {
		err = k.launch(op, s, &c, b)
	}
	b.Reset()
	blocks.Put(b)
	return err
}

// blocks are for the arguments of launches that are not prepared.
var blocks = sync.Pool{New: func() any { return argTypes.NewBlock() }}

// argTypes knows what can be an argument.
var argTypes = kargs.NewTypes(isBuffer, func(b any) (*native.Memory, driver.Use, error) {
	m, at, bytes := b.(anyMemory).memory()
	switch {
	case m == nil:
		return nil, driver.Use{}, invalid("", "the buffer is nil, or was not allocated")
	case m.Closed():
		return nil, driver.Use{}, closed("", m.String())
	}
	u := driver.Use{At: at, Bytes: bytes}
	if a, ok := b.(*Access); ok {
		u.Kind = a.kind
	}
	return m, u, nil
})

// isBuffer reports whether t is a *Buffer or *HostBuffer of whatever elements, and
// not a type of someone else that has the methods of an embedded one.
func isBuffer(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[anyMemory]()) &&
		t.Elem().PkgPath() == reflect.TypeFor[Device]().PkgPath()
}

// pack checks and packs arguments.
func (k *Kernel) pack(op string, b *kargs.Block[*native.Memory], args []any) error {
	return k.packed(op, b, b.Pack(k.params, k.known, args))
}

// packed says what is wrong with arguments, and that they are of the kernel's driver.
func (k *Kernel) packed(op string, b *kargs.Block[*native.Memory], err error) error {
	var inMemory *kargs.MemoryError
	var why *Error
	switch {
	case errors.As(err, &inMemory) && errors.As(err, &why):
		return &Error{Op: op, Err: why.Err, Detail: fmt.Sprintf("kernel %s: %s: %s", k.name, inMemory.Where(), why.Detail)}
	case err != nil:
		return k.invalid(op, err.Error())
	case k.m.native.Closed():
		return k.moduleClosed(op)
	}
	for _, m := range b.Holders() {
		if m.Dev.Driver != k.m.native.Dev.Driver {
			return twoDrivers(op)
		}
	}
	return nil
}

// launch enqueues the kernel on s with packed arguments.
func (k *Kernel) launch(op string, s *Stream, c *LaunchConfig, b *kargs.Block[*native.Memory]) error {
	n, problem := c.shape()
	if problem != "" {
		return k.invalid(op, problem)
	}
	if !s.usable() {
		return nilStream(op)
	}
	var told func()
	if r := k.m.native.Dev.Driver.API.Races; r != nil {
		told = r.Uses(b.Params(), b.Uses())
	}
	err := k.m.native.Launch(s.native, k.fn, &n, b.Params(), b.Holders())
	if told != nil {
		told()
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(k)
	if err != nil {
		return k.launchFailed(op, s, &n, b, err)
	}
	return nil
}

// Prepare checks and packs the arguments as [Kernel.Launch] does, for launches
// without that work.
func (k *Kernel) Prepare(args ...any) (*PreparedKernel, error) {
	const op = "kernel prepare"
	if !k.usable() {
		return nil, invalid(op, "the kernel is nil")
	}
	p := &PreparedKernel{k: k, args: argTypes.NewBlock()}
	if err := k.pack(op, p.args, args); err != nil {
		return nil, err
	}
	return p, nil
}

// PreparedKernel is a kernel with its arguments. It keeps buffers among them
// reachable, but does not keep them open. It needs no Close.
type PreparedKernel struct {
	k    *Kernel
	args *kargs.Block[*native.Memory]
}

// Launch enqueues the kernel on s, see [Kernel.Launch]. It allocates nothing and
// waits for no lock, except for the first use of a buffer on a stream that is not its
// home, and on a stream that is being captured. Any number of goroutines may launch at once, on the same stream
// or on several; but not during a call of Set.
func (p *PreparedKernel) Launch(s *Stream, c LaunchConfig) error {
	const op = "kernel launch"
	if p == nil || p.k == nil {
		return invalid(op, "the kernel is nil")
	}
	err := p.k.launch(op, s, &c, p.args)
	runtime.KeepAlive(p)
	return err
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
	if p.k.m.native.Closed() {
		return p.k.moduleClosed(op)
	}
	return p.k.packed(op, p.args, p.args.Set(i, arg))
}

// launchFailed says what the driver does not: which limit a launch has passed.
func (k *Kernel) launchFailed(op string, s *Stream, n *native.Shape, b *kargs.Block[*native.Memory], err error) error {
	var argument *native.ClosedArgument
	switch {
	case errors.As(err, &argument):
		return closed(op, fmt.Sprintf("kernel %s: a buffer of argument %d", k.name, b.ArgumentOf(argument.Index)))
	case err == ErrDeviceMismatch:
		return &Error{Op: op, Err: ErrDeviceMismatch,
			Detail: fmt.Sprintf("kernel %s is of device %d, the stream of device %d", k.name, k.m.native.Dev.Index, s.dev.native.Index)}
	case k.m.native.Closed() && errors.Is(err, ErrClosed) && !s.native.Closed():
		return k.moduleClosed(op)
	}
	r, ok := err.(driver.Result)
	if !ok {
		return failed(op, err)
	}
	e := k.failed(op, r).(*Error)
	switch r {
	case driver.ErrorInvalidValue, driver.ErrorLaunchOutOfResources:
		e.Detail = joinDetails(e.Detail, k.limits(n))
	case driver.ErrorCooperativeLaunchTooLarge:
		e.Detail = joinDetails(e.Detail, k.room(n))
	}
	return e
}

func (k *Kernel) limits(n *native.Shape) string {
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
		n.Grid, n.Block, n.Shared, threads, shared)
}

func (k *Kernel) room(n *native.Shape) string {
	threads := uint64(n.Block[0]) * uint64(n.Block[1]) * uint64(n.Block[2]) // few: the driver has looked at it
	each, r := k.maxActiveBlocks(int32(threads), uint64(n.Shared))
	if r != driver.Success {
		return ""
	}
	processors, err := k.m.Device().Attribute(driver.AttributeMultiprocessorCount)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d blocks of %v threads fit on the device at once, the grid has %v", each*processors, n.Block, n.Grid)
}
