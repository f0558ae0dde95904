package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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

// every does each kind of call that the driver's functions are fused for.
func every(t *testing.T, d *cuda.Device) {
	t.Helper()
	s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(d.DefaultStream()))
	require.NoError(t, e.Wait(d.DefaultStream()))
	_, err := d.DefaultStream().Query()
	require.NoError(t, err)
	require.NoError(t, other.WaitStream(s))
	require.NoError(t, d.DefaultStream().WaitStream(s))
	require.NoError(t, s.WaitStream(d.DefaultStream()))
}

// What wants a context finds it, and the thread has its own again afterwards.
func TestFusedCallsLeaveTheContext(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *cuda.Driver{"library": libraryDriver, "real": testgpu.RealDriver} {
		t.Run(name, func(t *testing.T) {
			testgpu.NotDetecting(t)
			d, err := open(t).OpenDevice(0)
			require.NoError(t, err)
			api := d.Driver().API()
			require.NotNil(t, api.Fused)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before, r := api.CtxGetCurrent()
			require.Equal(t, driver.Success, r)
			every(t, d)
			after, r := api.CtxGetCurrent()
			require.Equal(t, driver.Success, r)
			require.Equal(t, before, after)
		})
	}
}

// A wrapper of a function sees all calls of it, also those that are otherwise fused
// with others, and so do wrappers of the functions that make a context current.
func TestWrappersSeeWhatIsFused(t *testing.T) {
	api := *libraryDriver(t).API()
	require.NotNil(t, api.Fused)
	require.NotSame(t, libraryDriver(t).API(), api.Fused.Of, "what is replaced in place would replace both")
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		seen[name]++
	}
	record, push := api.EventRecord, api.CtxPushCurrent
	api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
		note("record")
		return record(e, s)
	}
	api.CtxPushCurrent = func(c driver.Context) driver.Result {
		note("push")
		return push(c)
	}
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	require.Nil(t, drv.API().Fused)
	require.NotNil(t, api.Fused, "the caller's own table was changed")
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	every(t, d)
	require.Equal(t, 4, seen["record"])
	require.GreaterOrEqual(t, seen["push"], 5)
}

func TestOpenRefusesWhatIsNoDriver(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	require.NoError(t, os.WriteFile(text, []byte("not a library"), 0o644))
	stubs := filepath.Join(dir, "stubs")
	require.NoError(t, os.Mkdir(stubs, 0o755))
	for _, path := range []string{dir, text, filepath.Join(dir, "absent.so"), filepath.Join(stubs, "libcuda.so"), "libcuda.so"} {
		_, err := cuda.Open(&cuda.Options{Library: path})
		require.Error(t, err, path)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		require.ErrorIs(t, err, cuda.ErrDriverNotFound, path)
		require.ErrorContains(t, err, path)
	}
}

func TestOpenDriverChecksTheTable(t *testing.T) {
	_, err := cuda.OpenDriver(nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)

	_, err = cuda.OpenDriver(&driver.API{Source: "half a driver", Init: func(uint32) driver.Result { return driver.Success }})
	var missing *driver.MissingError
	require.ErrorAs(t, err, &missing)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotContains(t, missing.Symbols, "cuInit")
	for _, f := range driver.Functions {
		if f.Required() && f.Symbol != "cuInit" {
			require.Contains(t, err.Error(), f.Symbol)
		}
	}
	require.True(t, strings.HasPrefix(err.Error(), "cuda: open driver: half a driver lacks"))
}

func TestOpenDriverReportsWhatInitAnswers(t *testing.T) {
	for code, want := range map[driver.Result]string{
		driver.ErrorStubLibrary:          "stubs directory",
		driver.ErrorSystemDriverMismatch: "reboot",
		driver.ErrorSystemNotReady:       "fabric manager",
		driver.ErrorUnknown:              "/dev/nvidia",
	} {
		api := *cudatest.New(cudatest.Config{}).API()
		api.Init = func(uint32) driver.Result { return code }
		_, err := cuda.OpenDriver(&api)
		require.ErrorIs(t, err, code)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, api.Source)
	}
}

func TestDriverWithoutDevice(t *testing.T) {
	drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{Devices: -1}).API())
	require.NoError(t, err)
	require.Zero(t, drv.DeviceCount())
	require.Equal(t, 13000, drv.Version())
	_, err = drv.OpenDevice(0)
	require.ErrorIs(t, err, cuda.ErrNoDevice)
	require.ErrorIs(t, err, driver.ErrorNoDevice)
	require.ErrorContains(t, err, drv.Library())
	require.ErrorContains(t, err, "CUDA 13.0")
}

// With an old driver the missing functions are named, and what can be done
// without them is done.
func TestOldDriver(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{DriverVersion: driver.Floor})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	require.Contains(t, drv.Missing(), "cuStreamGetId")
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s := testgpu.NewStream(t, d, nil)
	require.Equal(t, uint64(s.Handle()), s.ID())
	start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
	require.NoError(t, start.Record(s))
	require.NoError(t, end.Record(s))
	require.NoError(t, end.Synchronize())
	_, err = start.ElapsedTime(end)
	require.NoError(t, err)
	r := drv.API().StreamWaitValue32(s.Handle(), 0, 0, 0)
	require.Equal(t, driver.ErrorCallRequiresNewerDriver, r)
	require.ErrorIs(t, r, errors.ErrUnsupported)
}

// Hot calls that an older driver answers with INVALID_CONTEXT are repeated with
// the context bound.
func TestDriverThatWantsAContext(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		bound := func() bool { c, _ := bare.CtxGetCurrent(); return c != 0 }
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			if !bound() {
				return driver.ErrorInvalidContext
			}
			return bare.EventRecord(e, s)
		}
		api.EventQuery = func(e driver.Event) driver.Result {
			if !bound() {
				return driver.ErrorInvalidContext
			}
			return bare.EventQuery(e)
		}
		api.EventSynchronize = func(e driver.Event) driver.Result {
			if !bound() {
				return driver.ErrorInvalidContext
			}
			return bare.EventSynchronize(e)
		}
	})
	s := testgpu.NewStream(t, d, nil)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(s))
	require.NoError(t, e.SynchronizeContext(t.Context()))
}

// Objects of two drivers do not mix.
func TestTwoDrivers(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	_, foreign := testgpu.SimulatedDevice(t, nil)
	s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, foreign, nil)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(s))
	start, end := testgpu.NewEvent(t, testgpu.Timed()), testgpu.NewEvent(t, testgpu.Timed())
	require.NoError(t, start.Record(s))
	require.NoError(t, end.Record(other))
	_, elapsedErr := start.ElapsedTime(end)
	for _, err := range []error{elapsedErr, e.Record(other), e.Wait(other), s.WaitStream(other),
		cuda.Copy(s, testgpu.Alloc[uint8](t, d, 1), testgpu.Alloc[uint8](t, foreign, 1)), cuda.Fill(other, testgpu.Alloc[uint8](t, d, 1), 0)} {
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
		require.ErrorContains(t, err, "two different drivers")
	}
}

func TestDefaultDriverIsOpenedOnce(t *testing.T) {
	first, err := cuda.Open(nil)
	if err != nil {
		_, countErr := cuda.DeviceCount()
		_, openErr := cuda.OpenDevice(0)
		_, currentErr := cuda.CurrentDevice(t.Context())
		for _, err := range []error{err, countErr, openErr, currentErr} {
			if !errors.Is(err, errors.ErrUnsupported) {
				require.ErrorIs(t, err, cuda.ErrDriverNotFound)
			}
		}
		return
	}
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if d, err := cuda.Open(nil); d != first || err != nil {
				t.Errorf("%p, %v", d, err)
			}
		})
	}
	wg.Wait()
	n, err := cuda.DeviceCount()
	require.NoError(t, err)
	require.Equal(t, first.DeviceCount(), n)
}
