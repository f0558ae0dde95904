package cudatest

import "github.com/purecuda/cuda/driver"

func (p *Process) deviceCanAccessPeer(d, peer driver.Device) (can int32, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) ctxEnablePeerAccess(peer driver.Context, flags uint32) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) ctxDisablePeerAccess(peer driver.Context) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
