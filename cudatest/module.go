package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func (p *Process) moduleLoadDataEx(image unsafe.Pointer, count uint32, options, values unsafe.Pointer) (m driver.Module, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) moduleUnload(m driver.Module) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) moduleGetFunction(m driver.Module, name string) (f driver.Func, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
