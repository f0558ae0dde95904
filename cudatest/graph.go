package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

func (p *Process) streamGetCaptureInfo(h driver.Stream) (status driver.CaptureStatus, id uint64, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphGetNodes(h driver.Graph, nodes unsafe.Pointer) (n uint64, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphInstantiateWithFlags(h driver.Graph, flags uint64) (x driver.GraphExec, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphUpload(x driver.GraphExec, h driver.Stream) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphLaunch(x driver.GraphExec, h driver.Stream) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphExecUpdate(x driver.GraphExec, h driver.Graph) (failed driver.GraphNode, result driver.GraphExecUpdateResult, r driver.Result) {
	r = driver.ErrorNotSupported
	return
}

func (p *Process) graphExecDestroy(x driver.GraphExec) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
