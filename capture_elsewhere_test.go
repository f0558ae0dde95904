package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
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

	rule(t, "35 memory that the captured stream used is closed", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		buf, out := filled(t, home, 1), allocHost[uint32](t, d, lifeSize)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		end := begin(t, user)
		again := closeAndAskAgain(t, home, buf)
		time.Sleep(soon) // it is tried again
		end()
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	t.Run("a device is waited for, and its pool trimmed", func(t *testing.T) {
		for _, version := range []int{12020, 13000} {
			_, b := simulatedDevices(t, cudatest.Config{DriverVersion: version}, nil)
			s := newStream(t, b.dev(), nil)
			pool, err := b.dev().MemoryPool()
			require.NoError(t, err)
			if version < 12050 { // cuCtxRecordEvent itself would end it
				end := begin(t, s)
				require.ErrorIs(t, b.dev().Synchronize(), cuda.ErrCapturing)
				end()
			}
			end := begin(t, s)
			require.NoError(t, pool.Trim(0))
			end()
		}
	})
}
