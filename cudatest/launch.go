package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func (p *Process) launchKernel(f driver.Func, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, h driver.Stream, params, extra unsafe.Pointer) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) launchCooperativeKernel(f driver.Func, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, h driver.Stream, params unsafe.Pointer) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
