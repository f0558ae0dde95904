package cudatest

import "github.com/purecuda/cuda/driver"

func (p *Process) memcpy2DAsync(c driver.Memcpy2D, h driver.Stream) (r driver.Result) {
	r = driver.ErrorNotSupported
	return
}
