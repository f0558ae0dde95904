package cudatest

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/races"
)

func (p *Process) launchKernel(f driver.Func, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, h driver.Stream, params, extra unsafe.Pointer) driver.Result {
	l := &Launch{
		Grid:        [3]int{int(gridX), int(gridY), int(gridZ)},
		Block:       [3]int{int(blockX), int(blockY), int(blockZ)},
		SharedBytes: int(shared),
		made:        callsite.Caller(),
	}
	return p.launch("LaunchKernel", l, f, h, params, extra)
}

func (p *Process) launchCooperativeKernel(f driver.Func, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, h driver.Stream, params unsafe.Pointer) driver.Result {
	l := &Launch{
		Grid:        [3]int{int(gridX), int(gridY), int(gridZ)},
		Block:       [3]int{int(blockX), int(blockY), int(blockZ)},
		SharedBytes: int(shared),
		Cooperative: true,
		made:        callsite.Caller(),
	}
	return p.launch("LaunchCooperativeKernel", l, f, h, params, nil)
}

func (p *Process) launch(fn string, l *Launch, fh driver.Func, sh driver.Stream, params, extra unsafe.Pointer) driver.Result {
	defer p.enter(fn, sh, 0).leave()
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	s, r := p.on(fn, sh)
	if r != driver.Success {
		return r
	}
	f, r := p.function(fn, fh)
	switch {
	case r != driver.Success:
		return r
	case f.mod.ctx != s.ctx:
		p.misuse(fn, "the kernel %s is of device %d, and the stream %#x of device %d", f.name, f.mod.ctx.ordinal, sh, s.ctx.ordinal)
		return driver.ErrorInvalidHandle
	}
	l.f, l.k = f, p.gpu.kernels[f.name]
	if r := l.fits(); r != driver.Success {
		return r
	}
	if r := p.arguments(fn, l, params, extra); r != driver.Success {
		return r
	}
	l.note()
	d := p.gpu.conf.Latency
	if l.k.Time != nil {
		d = l.k.Time(l)
	}
	// Visible, because it may write to host memory, and its failure ends waits.
	return s.enqueue(&op{what: "kernel", task: &races.Task{What: "kernel " + f.name, Stream: s, At: l.made}, dur: int64(max(d, 0)), effect: l.run, visible: true})
}

// fits answers for the shape of the launch.
func (l *Launch) fits() driver.Result {
	for i, limit := range [3]int{math.MaxInt32, math.MaxUint16, math.MaxUint16} {
		if l.Grid[i] < 1 || l.Grid[i] > limit {
			return driver.ErrorInvalidValue
		}
	}
	threads := 1
	for i, limit := range [3]int{maxThreads, maxThreads, 64} {
		if l.Block[i] < 1 || l.Block[i] > limit {
			return driver.ErrorInvalidValue
		}
		threads *= l.Block[i]
	}
	switch {
	case threads > l.f.maxThreads, l.SharedBytes > l.f.dynamic:
		return driver.ErrorInvalidValue
	case l.Cooperative && !l.atOnce():
		return driver.ErrorCooperativeLaunchTooLarge
	}
	return driver.Success
}

// atOnce reports whether the device holds all blocks at once.
func (l *Launch) atOnce() bool {
	most := l.f.resident(l.Block[0]*l.Block[1]*l.Block[2], uint64(l.SharedBytes)) * multiprocessors
	for _, n := range l.Grid {
		most /= n
	}
	return most > 0
}

// Keys of the array extra, whose elements are pointers in C.
const (
	launchParamEnd           = 0
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

// arguments copies the arguments of a launch: params points to an array of
// pointers to them, extra to an array that describes a buffer with all of them.
func (p *Process) arguments(fn string, l *Launch, params, extra unsafe.Pointer) driver.Result {
	l.args = make([]byte, l.f.size)
	switch {
	case params != nil && extra != nil:
		return driver.ErrorInvalidValue
	case (params != nil || extra != nil) && l.f.mod.ptx == nil && l.k.Params == nil:
		p.misuse(fn, "the image does not tell the arguments of %s: set Kernel.Params", l.f.name)
		return driver.ErrorInvalidValue
	case extra != nil:
		return p.packed(fn, l, extra)
	case params == nil && len(l.f.params) > 0:
		p.misuse(fn, "%s has %d arguments, and none were given", l.f.name, len(l.f.params))
		return driver.ErrorInvalidValue
	}
	for i, a := range l.f.params {
		arg := *(*unsafe.Pointer)(slot(params, i))
		if arg == nil {
			p.misuse(fn, "the pointer to argument %d of %s is nil", i, l.f.name)
			return driver.ErrorInvalidValue
		}
		copy(l.Arg(i), unsafe.Slice((*byte)(arg), a.size))
	}
	return driver.Success
}

// packed copies the arguments from a buffer. A real driver takes one that is too
// small, and the kernel gets something else for what is missing: zeros here.
func (p *Process) packed(fn string, l *Launch, extra unsafe.Pointer) driver.Result {
	var buf unsafe.Pointer
	size := uintptr(0)
	for i := 0; ; i += 2 {
		switch *(*uintptr)(slot(extra, i)) { // not a pointer, which a small number must not be
		case launchParamBufferPointer:
			buf = *(*unsafe.Pointer)(slot(extra, i+1))
			continue
		case launchParamBufferSize:
			size = **(**uintptr)(slot(extra, i+1))
			continue
		case launchParamEnd:
		default:
			return driver.ErrorInvalidValue
		}
		break
	}
	if size > 0 && buf == nil {
		return driver.ErrorInvalidValue
	}
	if size != uintptr(l.f.size) {
		p.misuse(fn, "the arguments of %s take %d bytes, and %d were given", l.f.name, l.f.size, size)
	}
	if size > uintptr(l.f.size) {
		return driver.ErrorLaunchOutOfResources
	}
	copy(l.args, unsafe.Slice((*byte)(buf), size))
	return driver.Success
}

// slot returns where element i of a C array of pointers is.
func slot(array unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(array, uintptr(i)*unsafe.Sizeof(array))
}

// run is the launch's effect.
func (l *Launch) run() (uses []use) {
	if l.k.Run == nil {
		return nil
	}
	c := l.f.mod.ctx
	ended := false
	defer func() {
		l.running, l.touched = false, touches{}
		switch x := recover().(type) {
		case nil:
			if !ended {
				l.blunder("Run ended its goroutine, which it must not: use t.Error, not t.Fatal")
			}
		case kernelFault:
			c.fail(driver.Result(x))
		default:
			l.blunder(fmt.Sprintf("panic: %v", x))
		}
	}()
	l.running = true
	l.k.Run(l)
	ended = true
	return l.uses()
}

// blunder notes a mistake of the test's own kernel, and breaks the context.
func (l *Launch) blunder(what string) {
	c := l.f.mod.ctx
	c.proc.misuses.add(fmt.Sprintf("kernel %s, launched at %v: %s", l.f.name, l.made, what))
	c.fail(driver.ErrorLaunchFailed)
}

// fail breaks the context now.
func (c *context) fail(code driver.Result) {
	if c.fault != driver.Success {
		return
	}
	g := c.proc.gpu
	c.fault = code
	c.faultAt = min(c.faultAt, g.now)
	g.broadcast()
}

// lasting is how long a kernel takes that moves bytes and calculates.
func (c *Config) lasting(bytes, operations float64) time.Duration {
	const perSecond = 50e12
	return c.Latency + time.Duration(max(bytes/c.DeviceBandwidth, operations/perSecond)*1e9)
}
