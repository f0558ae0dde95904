package cudatest

import "github.com/purecuda/cuda/driver"

// function is a kernel of a module, as it was asked for by name.
type function struct {
	*entry
	name     string
	mod      *module
	handle   driver.Func
	dynamic  int   // the most shared memory that a launch may ask for
	carveout int32 // the share of shared memory in percent, plus 1; 0 is the default
}

const (
	funcBase uint64 = 0x5ad0_3000_0000
	funcStep uint64 = 0x40
)

// What a multiprocessor of the simulated devices has.
const (
	multiprocessors   = 132
	threadsPerMP      = 2048
	blocksPerMP       = 32
	registersPerMP    = 64 << 10
	registers         = 32 // per thread, of every kernel
	warp              = 32
	sharedPerMP       = 228 << 10
	sharedPerBlock    = 227 << 10
	sharedForBlock    = 1 << 10 // that the system takes of each block's
	sharedGranularity = 128
)

// function finds the function of a handle, for a call at the present, which a broken
// context refuses. fn names the caller.
func (p *Process) function(fn string, h driver.Func) (*function, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	f := p.funcs[h]
	if f == nil {
		p.badHandle(fn, "function", uint64(h), funcBase, funcStep, p.gpu.funcs)
		return nil, driver.ErrorInvalidHandle
	}
	p.gpu.advance()
	return f, f.mod.ctx.fault
}

func (p *Process) funcGetAttribute(a driver.FuncAttribute, h driver.Func) (int32, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	f, r := p.function("FuncGetAttribute", h)
	if r != driver.Success {
		return 0, r
	}
	switch a {
	case driver.FuncMaxThreadsPerBlock:
		return int32(f.maxThreads), driver.Success
	case driver.FuncSharedBytes:
		return int32(f.shared), driver.Success
	case driver.FuncConstBytes, driver.FuncLocalBytes:
		return 0, driver.Success
	case driver.FuncRegisters:
		return registers, driver.Success
	case driver.FuncPTXVersion: // of the architecture, not of the language
		if f.mod.ptx != nil && f.mod.ptx.target > 0 {
			return int32(f.mod.ptx.target), driver.Success
		}
		return deviceTarget, driver.Success
	case driver.FuncBinaryVersion:
		return deviceTarget, driver.Success
	case driver.FuncMaxDynamicSharedBytes:
		return int32(f.dynamic), driver.Success
	case driver.FuncPreferredSharedCarveout:
		return f.carveout - 1, driver.Success
	}
	return 0, driver.ErrorInvalidValue
}

func (p *Process) funcSetAttribute(h driver.Func, a driver.FuncAttribute, v int32) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	f, r := p.function("FuncSetAttribute", h)
	switch {
	case r != driver.Success:
		return r
	case a == driver.FuncMaxDynamicSharedBytes && v >= 0 && int(v)+f.shared <= sharedPerBlock:
		f.dynamic = int(v)
	case a == driver.FuncPreferredSharedCarveout && v >= -1 && v <= 100:
		f.carveout = v + 1
	default:
		return driver.ErrorInvalidValue
	}
	return driver.Success
}

func (p *Process) funcGetParamInfo(h driver.Func, index uint64) (offset, size uint64, r driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	f, r := p.function("FuncGetParamInfo", h)
	switch {
	case r != driver.Success:
		return 0, 0, r
	case index >= uint64(len(f.params)):
		return 0, 0, driver.ErrorInvalidValue
	}
	a := f.params[index]
	return uint64(a.offset), uint64(a.size), driver.Success
}

// resident returns how many blocks of f a multiprocessor holds at once.
func (f *function) resident(threads int, dynamic uint64) int {
	if threads < 1 || threads > f.maxThreads || dynamic > sharedPerBlock || int(dynamic)+f.shared > sharedPerBlock {
		return 0
	}
	threads = (threads + warp - 1) / warp * warp
	shared := (f.shared + int(dynamic) + sharedForBlock + sharedGranularity - 1) / sharedGranularity * sharedGranularity
	return min(blocksPerMP, threadsPerMP/threads, registersPerMP/(registers*threads), sharedPerMP/shared)
}

func (p *Process) occupancyMaxActiveBlocksPerMultiprocessor(h driver.Func, blockSize int32, shared uint64) (int32, driver.Result) {
	const fn = "OccupancyMaxActiveBlocksPerMultiprocessor"
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.here(fn); r != driver.Success {
		return 0, r
	}
	f, r := p.function(fn, h)
	switch {
	case r != driver.Success:
		return 0, r
	case blockSize <= 0:
		return 0, driver.ErrorInvalidValue
	}
	return int32(f.resident(int(blockSize), shared)), driver.Success
}

// occupancyMaxPotentialBlockSize cannot call the C function that says how much
// shared memory a size of block needs.
func (p *Process) occupancyMaxPotentialBlockSize(h driver.Func, sharedFor uintptr, shared uint64, limit int32) (grid, block int32, r driver.Result) {
	const fn = "OccupancyMaxPotentialBlockSize"
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if _, r := p.here(fn); r != driver.Success {
		return 0, 0, r
	}
	f, r := p.function(fn, h)
	switch {
	case r != driver.Success:
		return 0, 0, r
	case sharedFor != 0:
		return 0, 0, driver.ErrorNotSupported
	case limit < 0:
		return 0, 0, driver.ErrorInvalidValue
	}
	most := f.maxThreads
	if limit > 0 {
		most = min(most, int(limit))
	}
	best := 0
	for size := most; size > 0; size = (size - 1) / warp * warp {
		if n := f.resident(size, shared); n*size > best {
			best, grid, block = n*size, int32(n*multiprocessors), int32(size)
		}
	}
	return grid, block, driver.Success
}
