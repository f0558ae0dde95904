package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// Every call on a device whose context has failed says so.
func TestLostDevice(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	e, err := s.RecordEvent(nil)
	require.NoError(t, err)
	gpu.Fault(s, driver.ErrorLaunchFailed)
	_, queryErr := e.Query()
	_, createErr := d.NewStream(nil)
	_, allocErr := cuda.Alloc[byte](d, 16)
	_, poolErr := cuda.AllocAsync[byte](s, 16)
	for _, err := range []error{s.Synchronize(), queryErr, createErr, allocErr, poolErr, e.Record(s), e.SynchronizeContext(t.Context()), d.Synchronize()} {
		require.ErrorIs(t, err, cuda.ErrDeviceLost)
		require.ErrorIs(t, err, driver.ErrorLaunchFailed)
		require.ErrorContains(t, err, "only a new process")
	}
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
