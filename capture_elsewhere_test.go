package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Another library captures a stream that the library uses, by its handle. What the library
// does on its own behalf leaves the capture alone.
func TestCapturesOfAStreamsHandle(t *testing.T) {
	begin := func(t *testing.T, s *cuda.Stream) (end func()) {
		api := s.Device().Driver().API()
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		return func() {
			g, r := api.StreamEndCapture(s.Handle())
			require.Equal(t, driver.Success, r, "the capture lives")
			require.Equal(t, driver.Success, api.GraphDestroy(g))
		}
	}

	testgpu.Rule(t, "35 memory that the captured stream used is closed", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		buf, out := testgpu.Filled(t, home, 1), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		end := begin(t, user)
		again := testgpu.CloseAndAllocate(t, home, buf)
		time.Sleep(testgpu.Soon) // it is tried again
		end()
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	t.Run("a device is waited for, and its pool trimmed", func(t *testing.T) {
		for _, version := range []int{12020, 13000} {
			_, b := testgpu.Simulated(t, cudatest.Config{DriverVersion: version}, nil)
			s := testgpu.NewStream(t, b.Device(), nil)
			pool, err := b.Device().MemoryPool()
			require.NoError(t, err)
			if version < 12050 { // cuCtxRecordEvent itself would end it
				end := begin(t, s)
				require.ErrorIs(t, b.Device().Synchronize(), cuda.ErrCapturing)
				end()
			}
			end := begin(t, s)
			require.NoError(t, pool.Trim(0))
			end()
		}
	})
}
