package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func (p *Process) memHostRegister(ptr unsafe.Pointer, n uint64, flags uint32) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memHostUnregister(ptr unsafe.Pointer) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) memHostGetDevicePointer(ptr unsafe.Pointer, flags uint32) (addr driver.DevicePtr, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
