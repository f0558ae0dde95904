package testgpu

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// Backend is what a test runs on: a driver and its devices.
type Backend struct {
	Driver  *cuda.Driver
	Devices []*cuda.Device
	Real    bool // NVIDIA's driver
}

// Device returns the first device.
func (b *Backend) Device() *cuda.Device { return b.Devices[0] }

// Rule runs f on the simulated GPU and on a real one. The name begins with the number of
// the rule in docs/semantics.md. What f leaves open is a failure. CUDA_TEST_REQUIRE_GPU=1
// turns a missing driver from a skip into a failure.
func Rule(t *testing.T, name string, devices int, f func(t *testing.T, b *Backend)) {
	rule(t, name, cudatest.Config{Devices: max(devices, 1)}, f)
}

// RuleWithRaces is [Rule] for what uses memory on several streams and cares only for how long
// it lives.
func RuleWithRaces(t *testing.T, name string, devices int, f func(t *testing.T, b *Backend)) {
	rule(t, name, cudatest.Config{Devices: max(devices, 1), AllowRaces: true}, f)
}

func rule(t *testing.T, name string, c cudatest.Config, f func(t *testing.T, b *Backend)) {
	t.Run("rule "+name, func(t *testing.T) {
		t.Run("simulated", func(t *testing.T) {
			gpu := cudatest.New(c)
			t.Cleanup(func() { // misuse is the point of some rules, but leaks and races are of none
				var problems []string
				none := func() bool { // some memory is freed in the background, some events by the collector
					runtime.GC()
					problems = slices.DeleteFunc(gpu.Problems(), func(p string) bool { return strings.HasPrefix(p, "misuse") })
					return len(problems) == 0
				}
				for deadline := time.Now().Add(10 * time.Second); !none() && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				require.Empty(t, problems)
			})
			api := gpu.API()
			if detectRaces {
				api = cuda.DetectRaces(api)
			}
			drv, err := cuda.OpenDriver(api)
			require.NoError(t, err)
			run(t, &Backend{Driver: drv}, c.AllowRaces, f)
		})
		t.Run("real", func(t *testing.T) {
			drv := RealDriver(t)
			if drv.DeviceCount() < c.Devices {
				t.Skipf("needs %d devices, has %d", c.Devices, drv.DeviceCount())
			}
			run(t, &Backend{Driver: drv, Real: true}, c.AllowRaces, f)
		})
	})
}

// detectRaces has the rules, and all that runs on a real GPU, look for races.
var detectRaces = os.Getenv("PURECUDA_TEST_RACES") == "1"

// NotDetecting skips a test that looks at what calls cost, or at the table itself, where the
// driver looks for races.
func NotDetecting(t testing.TB) {
	t.Helper()
	if detectRaces {
		t.Skip("PURECUDA_TEST_RACES=1")
	}
}

// run opens the devices of b, runs f, and checks that nothing is left open.
func run(t *testing.T, b *Backend, allowRaces bool, f func(t *testing.T, b *Backend)) {
	b.openDevices(t)
	b.Driver.OnRace(func(report string) {
		if !allowRaces {
			t.Error(report)
		}
	})
	t.Cleanup(func() { b.Driver.OnRace(nil) })
	before, used := b.Driver.Stats(), b.poolsUse(t)
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); b.Driver.Stats() != before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // what a wait no longer needs is closed by a goroutine
		}
		require.Equal(t, before, b.Driver.Stats(), "left open")
		require.Equal(t, used, b.poolsUse(t), "bytes of the pools left in use")
	})
	f(t, b)
}

func (b *Backend) openDevices(t testing.TB) {
	t.Helper()
	for i := range b.Driver.DeviceCount() {
		d, err := b.Driver.OpenDevice(i)
		require.NoError(t, err)
		b.Devices = append(b.Devices, d)
	}
}

// poolsUse returns how many bytes of the devices' memory pools are in use.
func (b *Backend) poolsUse(t testing.TB) (used []uint64) {
	for _, d := range b.Devices {
		pool, err := d.MemoryPool()
		require.NoError(t, err)
		s, err := pool.Stats()
		if !errors.Is(err, cuda.ErrDeviceLost) {
			require.NoError(t, err)
		}
		used = append(used, s.Used)
	}
	return used
}

// RealDriver opens NVIDIA's driver, which looks for races with PURECUDA_TEST_RACES=1, and skips the test where there is no GPU, or fails it
// with CUDA_TEST_REQUIRE_GPU=1.
func RealDriver(t testing.TB) *cuda.Driver {
	t.Helper()
	drv, err := cuda.Open(&cuda.Options{DetectRaces: detectRaces})
	if err == nil && drv.DeviceCount() > 0 {
		return drv
	}
	if err == nil {
		_, err = drv.OpenDevice(0)
	}
	if os.Getenv("CUDA_TEST_REQUIRE_GPU") == "1" {
		t.Fatalf("CUDA_TEST_REQUIRE_GPU=1, but there is no GPU: %v", err)
	}
	t.Skip("no GPU here")
	return nil
}

// Open opens a driver of its own by a table, and its devices. At the end nothing must be
// left open, no wait and no poller.
func Open(t testing.TB, api *driver.API) *Backend {
	t.Helper()
	drv, err := cuda.OpenDriver(api)
	require.NoError(t, err)
	b := &Backend{Driver: drv}
	b.openDevices(t)
	t.Cleanup(func() {
		if !t.Failed() {
			WaitUntil(t, func() bool { return drv.Stats() == cuda.Stats{} })
			NoWaits(t, drv)
		}
	})
	return b
}

// Modified opens a driver like that of b, with a table that change has modified.
func Modified(t testing.TB, b *Backend, change func(*driver.API)) *Backend {
	t.Helper()
	api := *b.Driver.API()
	change(&api)
	own := Open(t, &api)
	own.Real = b.Real
	return own
}

// Simulated opens the devices of a simulated GPU, with a table that change, unless it is
// nil, has modified. At the end the GPU must have nothing to complain about.
func Simulated(t testing.TB, c cudatest.Config, change func(*driver.API)) (*cudatest.GPU, *Backend) {
	t.Helper()
	gpu := cudatest.New(c)
	t.Cleanup(func() {
		if t.Failed() {
			return // it may have left anything
		}
		for _, p := range gpu.Problems() {
			t.Error(p)
		}
	})
	api := *gpu.API()
	if change != nil {
		change(&api)
	}
	return gpu, Open(t, &api)
}

// SimulatedDevice is [Simulated] with one device, for tests that leave objects to the
// garbage collector: what these had open on the GPU must be gone soon after the end, but
// they may be counted as forgotten.
func SimulatedDevice(t testing.TB, change func(*driver.API)) (*cudatest.GPU, *cuda.Device) {
	t.Helper()
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	if change != nil {
		change(&api)
	}
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); len(gpu.Problems()) > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // some memory is freed in the background
		}
		gpu.Check(t)
	})
	return gpu, d
}

// Bubble runs f with a simulated GPU in virtual time.
func Bubble(t *testing.T, f func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device)) {
	synctest.Test(t, func(t *testing.T) {
		gpu, d := SimulatedDevice(t, nil)
		f(t, gpu, d)
	})
}
