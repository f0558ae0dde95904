package cudatest

import "github.com/purecuda/cuda/driver"

func (p *Process) funcGetAttribute(a driver.FuncAttribute, f driver.Func) (v int32, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) funcSetAttribute(f driver.Func, a driver.FuncAttribute, v int32) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) funcGetParamInfo(f driver.Func, index uint64) (offset, size uint64, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) occupancyMaxActiveBlocksPerMultiprocessor(f driver.Func, blockSize int32, shared uint64) (blocks int32, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) occupancyMaxPotentialBlockSize(f driver.Func, sharedFor uintptr, shared uint64, limit int32) (grid, block int32, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
