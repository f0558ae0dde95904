// Package simulated opens simulated GPUs for tests:
//
//	func TestMine(t *testing.T) {
//		dev, gpu := simulated.Device(t, nil)
//		...
//	}
//
// The device is one of package cuda, on a driver of package cudatest. Tests that need
// more than one device, or other processes, open the driver themselves.
package simulated

import (
	"testing"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// Device opens device 0 of a new simulated GPU; c may be nil. When the test has ended, and with it
// the functions that it deferred or gave to Cleanup later, the GPU is checked: what was
// left open, misused or not ordered fails the test. See [cudatest.GPU.Check].
//
// In a bubble of testing/synctest, call Device in the bubble.
func Device(t testing.TB, c *cudatest.Config) (*cuda.Device, *cudatest.GPU) {
	t.Helper()
	if c == nil {
		c = &cudatest.Config{}
	}
	gpu := cudatest.New(*c)
	drv, err := cuda.OpenDriver(gpu.API())
	if err != nil {
		t.Fatal(err)
	}
	d, err := drv.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Helper()
		// Memory that was closed while it was used is freed in the background.
		for deadline := time.Now().Add(settle); open(drv) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		gpu.Check(t)
	})
	return d, gpu
}

// settle is how long what was closed may take to be freed.
const settle = time.Second

func open(drv *cuda.Driver) bool {
	s := drv.Stats()
	s.Forgotten = 0
	return s != cuda.Stats{}
}
