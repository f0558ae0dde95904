package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A device without pools: the same calls, freed by the library.
func TestNoMemoryPools(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{NoMemoryPools: true})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	b, calls := testgpu.Counted(t, &testgpu.Backend{Driver: drv, Devices: make([]*cuda.Device, 1)}, nil)
	d := b.Device()
	_, err = d.MemoryPool()
	require.ErrorIs(t, err, errors.ErrUnsupported)
	home, user, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	out := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
	before, err := d.FreeMemory()
	require.NoError(t, err)
	givenBack := func() bool {
		n, err := d.FreeMemory()
		require.NoError(t, err)
		return n == before
	}

	// Another stream uses it.
	buf := testgpu.Filled(t, home, 1)
	require.NoError(t, user.WaitStream(home))
	release := gpu.Hold(user)
	require.NoError(t, cuda.Copy(user, out, buf))
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	require.NoError(t, home.Synchronize())
	time.Sleep(testgpu.Soon)
	require.Zero(t, calls.Count("MemFree"), "which would stop all that goes on on the device")
	require.False(t, givenBack())
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)
	testgpu.RequireAll(t, 1, out.Slice())

	// Its home uses it.
	release = gpu.Hold(home)
	buf = testgpu.Filled(t, home, 1)
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	time.Sleep(testgpu.Soon)
	require.Equal(t, 1, calls.Count("MemFree"))
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)

	// Nothing uses it, but the device is busy, and MemFree blocks.
	buf = testgpu.Filled(t, home, 1)
	require.NoError(t, home.Synchronize())
	release = gpu.Hold(third)
	testgpu.Returns(t, func() { require.NoError(t, buf.Close()) })
	release()
	require.Eventually(t, givenBack, 10*time.Second, time.Millisecond)
	require.Zero(t, b.Driver.Stats().Buffers)
}
