package cuda_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/driver/drivertest"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The real driver is held to the rules of the table that the simulated GPU
// keeps; package drivertest tries the simulated GPU itself.
func TestConformance(t *testing.T) {
	api := testgpu.RealDriver(t).API()
	drivertest.Run(t, func(testing.TB) *driver.API { return api })
}

// What a kernel's fault makes of the answers of calls that ask the device nothing.
func TestTableOfAFailedDevice(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	failedTable(t, d, func(s *cuda.Stream) { gpu.Fault(s, driver.ErrorLaunchFailed) })
}

func TestTableOfAFailedDeviceReal(t *testing.T) {
	testgpu.InAnotherProcess(t, "TestTableOfAFailedDeviceChild")
}

func TestTableOfAFailedDeviceChild(t *testing.T) { testgpu.Trapped(t, failedTable) }

func failedTable(t *testing.T, d *cuda.Device, fail func(*cuda.Stream)) {
	d.Driver().OnCleanupError(func(error) {})
	api, ordinal := d.Driver().API(), driver.Device(d.Index())
	c, r := api.DevicePrimaryCtxRetain(ordinal)
	require.Equal(t, driver.Success, r)
	stream, err := d.NewStream(nil)
	require.NoError(t, err)
	s := stream.Handle()
	captured, err := d.NewStream(nil)
	require.NoError(t, err)
	var m driver.Module
	require.Equal(t, driver.Success, testgpu.InContext(d, func() (r driver.Result) {
		image := append([]byte(kernels.PTX), 0)
		m, r = api.ModuleLoadDataEx(unsafe.Pointer(unsafe.SliceData(image)), 0, nil, nil)
		return r
	}))
	f, r := api.ModuleGetFunction(m, "purecuda_fill")
	require.Equal(t, driver.Success, r)
	require.Equal(t, driver.Success, api.StreamBeginCapture(captured.Handle(), driver.CaptureModeRelaxed))

	fail(stream)
	require.Equal(t, driver.ErrorLaunchFailed, api.StreamSynchronize(s))

	for name, ask := range map[string]func() driver.Result{
		"StreamGetPriority":    func() driver.Result { _, r := api.StreamGetPriority(s); return r },
		"StreamGetFlags":       func() driver.Result { _, r := api.StreamGetFlags(s); return r },
		"StreamIsCapturing":    func() driver.Result { _, r := api.StreamIsCapturing(s); return r },
		"StreamGetCtx":         func() driver.Result { _, r := api.StreamGetCtx(s); return r },
		"StreamGetID":          func() driver.Result { _, r := api.StreamGetID(s); return r },
		"StreamGetCaptureInfo": func() driver.Result { _, _, r := api.StreamGetCaptureInfo(s); return r },
		"StreamEndCapture":     func() driver.Result { _, r := api.StreamEndCapture(s); return r },
		"the end of a capture": func() driver.Result { _, r := api.StreamEndCapture(captured.Handle()); return r },
		"FuncSetAttribute":     func() driver.Result { return api.FuncSetAttribute(f, driver.FuncMaxDynamicSharedBytes, 1024) },
		"FuncGetParamInfo":     func() driver.Result { _, _, r := api.FuncGetParamInfo(f, 0); return r },
		"FuncGetAttribute":     func() driver.Result { _, r := api.FuncGetAttribute(driver.FuncRegisters, f); return r },
		"a known function":     func() driver.Result { _, r := api.ModuleGetFunction(m, "purecuda_fill"); return r },
		"another function":     func() driver.Result { _, r := api.ModuleGetFunction(m, "purecuda_add"); return r },
		"an absent function":   func() driver.Result { _, r := api.ModuleGetFunction(m, "no_such_kernel"); return r },
		"a nameless function":  func() driver.Result { _, r := api.ModuleGetFunction(m, ""); return r },
	} {
		if r := ask(); r != driver.ErrorCallRequiresNewerDriver {
			assert.Equal(t, driver.ErrorLaunchFailed, r, name)
		}
	}
	again, r := api.DevicePrimaryCtxRetain(ordinal)
	assert.Equal(t, driver.Success, r, "DevicePrimaryCtxRetain")
	assert.Equal(t, c, again, "the primary context, asked for again")
	_, active, r := api.DevicePrimaryCtxGetState(ordinal)
	assert.Equal(t, driver.Success, r, "DevicePrimaryCtxGetState")
	assert.EqualValues(t, 1, active, "the primary context is active")
	for api.DevicePrimaryCtxRelease(ordinal) == driver.Success {
	}
	_, r = api.DevicePrimaryCtxRetain(ordinal)
	assert.Equal(t, driver.ErrorLaunchFailed, r, "DevicePrimaryCtxRetain after the last release")
}
