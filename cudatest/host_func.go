package cudatest

import "github.com/purecuda/cuda/driver"

func (p *Process) launchHostFunc(h driver.Stream, f driver.HostFunc) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
