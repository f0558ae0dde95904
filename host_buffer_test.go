package cuda_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// AfterFree's function is called once, when the memory is free, also if that is so already.
func TestAfterFree(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	made := func() *cuda.HostBuffer[byte] {
		h, err := cuda.AllocHost[byte](b.Device(), 16, nil)
		require.NoError(t, err)
		return h
	}
	var calls atomic.Int32
	count := func() { calls.Add(1) }

	busy := made()
	busy.AfterFree(func() { t.Error("was replaced") })
	busy.AfterFree(count)
	part, err := busy.Range(0, 8)
	require.NoError(t, err)
	part.AfterFree(func() { t.Error("of a part") })
	release := gpu.Hold(s)
	dst := testgpu.Alloc[byte](t, b.Device(), 16)
	require.NoError(t, cuda.Copy[byte](s, dst, busy))
	require.NoError(t, busy.Close())
	require.Zero(t, calls.Load())
	release()
	testgpu.WaitUntil(t, func() bool { return calls.Load() == 1 })

	none := made()
	none.AfterFree(func() { t.Error("was taken back") })
	none.AfterFree(nil)
	require.NoError(t, none.Close())

	late := made()
	require.NoError(t, late.Close())
	late.AfterFree(count)
	require.EqualValues(t, 2, calls.Load())
	late.AfterFree(nil)
}
