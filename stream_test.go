package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestNilStreamIsAnError(t *testing.T) {
	var s *cuda.Stream
	require.Zero(t, s.Handle())
	require.Zero(t, s.ID())
	require.Zero(t, s.Key())
	require.Nil(t, s.Device())
	for name, err := range testgpu.StreamCalls(s, cuda.NewEvent(nil), nil) {
		require.ErrorIs(t, err, cuda.ErrInvalid, name)
	}
	require.NoError(t, s.Close())
	require.True(t, s.Equal(nil))
	require.Equal(t, "cuda.Stream(nil)", s.String())
	for name, err := range testgpu.StreamCalls(new(cuda.Stream), cuda.NewEvent(nil), nil) {
		require.ErrorIs(t, err, cuda.ErrInvalid, name)
	}
}
