package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestNilEventIsAnError(t *testing.T) {
	var e *cuda.Event
	_, queryErr := e.Query()
	_, elapsedErr := cuda.NewEvent(testgpu.Timed()).ElapsedTime(nil)
	_, handleErr := e.IPCHandle()
	for _, err := range []error{queryErr, elapsedErr, handleErr, e.Record(nil), e.Wait(nil), e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}
	require.NoError(t, e.Close())
	require.Zero(t, e.Handle())
	require.Nil(t, e.Device())
	require.Equal(t, "cuda.Event(nil)", e.String())
	require.ErrorIs(t, cuda.NewEvent(nil).Record(nil), cuda.ErrInvalid)
	var typed *cuda.Error
	require.True(t, errors.As(e.Synchronize(), &typed))
	require.Equal(t, "event synchronize", typed.Op)
}
