package rules_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// detecting is a driver that looks for races, and what it has found.
type detecting struct {
	*cuda.Driver
	mu    sync.Mutex
	found []string
}

func (d *detecting) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.found
	d.found = nil
	return found
}

// withDetector runs f on a simulated GPU that does not look for races itself, and on a real one.
func withDetector(t *testing.T, f func(t *testing.T, open func(t *testing.T) *detecting)) {
	listen := func(t *testing.T, drv *cuda.Driver) *detecting {
		d := &detecting{Driver: drv}
		drv.OnRace(func(report string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.found = append(d.found, report)
		})
		t.Cleanup(func() { drv.OnRace(nil) })
		return d
	}
	t.Run("simulated", func(t *testing.T) {
		f(t, func(t *testing.T) *detecting {
			gpu := cudatest.New(cudatest.Config{Devices: 2, AllowRaces: true})
			return listen(t, testgpu.Open(t, cuda.DetectRaces(gpu.API())).Driver)
		})
	})
	t.Run("real", func(t *testing.T) {
		testgpu.NotDetecting(t) // else the wrong programs are reported twice
		table := testgpu.RealDriver(t).API()
		f(t, func(t *testing.T) *detecting { return listen(t, testgpu.Open(t, cuda.DetectRaces(table)).Driver) })
	})
}

// Each wrong program is found each time, and no right one.
func TestRaces(t *testing.T) {
	withDetector(t, func(t *testing.T, open func(t *testing.T) *detecting) {
		for name, program := range testgpu.RacePrograms() {
			for what, right := range map[string]bool{"right": true, "wrong": false} {
				t.Run(name+", "+what, func(t *testing.T) {
					drv := open(t)
					if strings.Contains(name, "two devices") && drv.DeviceCount() < 2 {
						t.Skip("needs two devices")
					}
					d, err := drv.OpenDevice(0)
					require.NoError(t, err)
					program(testgpu.NewRaced(t, d), right)
					require.NoError(t, d.Synchronize())
					found := drv.take()
					require.Equal(t, right, len(found) == 0, "%v", found)
				})
			}
		}
	})
}
