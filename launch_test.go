package cuda_test

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestLaunchConfig(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.LaunchKernel = func(driver.Func, uint32, uint32, uint32, uint32, uint32, uint32, uint32, driver.Stream, unsafe.Pointer, unsafe.Pointer) driver.Result {
			t.Error("the driver has seen it")
			return driver.Success
		}
	})
	s := testgpu.NewStream(t, d, nil)
	k := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_empty")
	x := cuda.Dim3{X: 1}
	for _, c := range []struct {
		says string
		cuda.LaunchConfig
	}{
		{"the grid's X is 0", cuda.LaunchConfig{Block: x}},
		{"the grid's X is -1", cuda.LaunchConfig{Grid: cuda.Dim3{X: -1}, Block: x}},
		{"the grid's Y is -2", cuda.LaunchConfig{Grid: cuda.Dim3{X: 1, Y: -2}, Block: x}},
		{"the block's X is 0", cuda.LaunchConfig{Grid: x}},
		{"the block's Z is 4294967296", cuda.LaunchConfig{Grid: x, Block: cuda.Dim3{X: 1, Z: 1 << 32}}},
		{"-1 bytes of shared memory", cuda.LaunchConfig{Grid: x, Block: x, SharedBytes: -1}},
		{"4294967296 bytes of shared memory", cuda.LaunchConfig{Grid: x, Block: x, SharedBytes: 1 << 32}},
		{"the grid's X is 0", cuda.Grid1D(0, 256)},
		{"the grid's X is 0", cuda.Grid1D(-1, 256)},
		{"the grid's X is 0", cuda.Grid1D(10, 0)},
	} {
		err := k.Launch(s, c.LaunchConfig)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "kernel purecuda_empty: "+c.says)
	}
	for _, c := range [][3]int{{1, 256, 1}, {256, 256, 1}, {257, 256, 2}, {math.MaxInt, 1024, 1 << 53}} {
		require.Equal(t, cuda.LaunchConfig{Grid: cuda.Dim3{X: c[2]}, Block: cuda.Dim3{X: c[1]}}, cuda.Grid1D(c[0], c[1]))
	}
}

// A kernel that fails takes the device with it. Only on the simulated one: a real
// device would be lost to the other tests.
func TestKernelFails(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte(kernels.PTX))
	require.NoError(t, err)
	k := testgpu.Kernel(t, m, "purecuda_trap")
	s := d.DefaultStream()
	require.NoError(t, k.Launch(s, testgpu.OneThread))
	require.ErrorIs(t, s.Synchronize(), cuda.ErrDeviceLost)
	err = k.Launch(s, testgpu.OneThread)
	require.ErrorIs(t, err, cuda.ErrDeviceLost)
	require.ErrorIs(t, err, driver.ErrorLaunchFailed)
	require.ErrorContains(t, err, "kernel purecuda_trap")
}
