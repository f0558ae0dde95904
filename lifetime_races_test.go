package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A closed stream counts as a user of memory for as long as calls on it are under way.
func TestClosedStreamsCountTheirLastUse(t *testing.T) {
	var copying testgpu.Hook
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			copying.Run()
			return bare.MemcpyAsync(dst, src, n, s)
		}
	})
	home, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	user, err := d.NewStream(nil)
	require.NoError(t, err)
	buf := testgpu.Filled(t, home, 1)
	out, out3 := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, third.WaitStream(home))
	require.NoError(t, cuda.Copy(user, out, buf))
	require.NoError(t, user.Synchronize())
	for i := range out.Slice() {
		out.Slice()[i] = 7
	}

	var release func()
	copying.Next(func() { // on its way to the driver
		require.NoError(t, user.Close())
		require.NoError(t, cuda.Copy(third, out3, buf), "which drops users that are closed and done")
		release = gpu.Hold(user)
	})
	require.NoError(t, cuda.Copy(user, out, buf))
	again := testgpu.CloseAndAllocate(t, home, buf)
	release()
	require.NoError(t, d.Synchronize())
	testgpu.RequireAll(t, 1, out.Slice())
	require.NoError(t, again.Close())
}
