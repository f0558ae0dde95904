package cuda_test

import (
	"testing"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// The real driver is held to the rules of the table that the simulated GPU
// keeps; package cudatest tries the simulated GPU itself.
func TestConformance(t *testing.T) {
	api := realDriver(t).API()
	cudatest.TestDriver(t, func(testing.TB) *driver.API { return api })
}
