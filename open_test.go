package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

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

func TestErrorText(t *testing.T) {
	err := error(&cuda.Error{Op: "event record", Code: driver.ErrorInvalidHandle, Err: cuda.ErrDeviceMismatch, Detail: "why"})
	require.EqualError(t, err, "cuda: event record: not of the same device: CUDA_ERROR_INVALID_HANDLE (400): the handle is not valid: why")
	require.ErrorIs(t, err, driver.ErrorInvalidHandle)
	require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	require.NotErrorIs(t, err, cuda.ErrDeviceLost)
	var code driver.Result
	require.ErrorAs(t, err, &code)
	require.Equal(t, "CUDA_ERROR_INVALID_HANDLE", code.Name())
}
