package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
)

// A program that makes streams, frees memory on them and closes them leaves nothing
// behind.
func TestClosedStreamsAreForgotten(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	for _, closeLast := range []bool{false, true} {
		for range 10 {
			s, err := d.NewStream(nil)
			require.NoError(t, err)
			b, err := AllocAsync[byte](s, 1024)
			require.NoError(t, err)
			if closeLast {
				require.NoError(t, s.Close())
				require.NoError(t, b.Close())
				continue
			}
			require.NoError(t, b.Close())
			require.Len(t, d.freed.streams, 1)
			require.NoError(t, s.Close())
		}
	}
	require.Empty(t, d.freed.streams)
	gpu.Check(t)
}

// Trimming the pool makes the driver note the frees that are done, and waits for
// none.
func TestTrimNotesFrees(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	pool, err := d.MemoryPool()
	require.NoError(t, err)
	var streams [2]*Stream
	for i := range streams {
		streams[i], err = d.NewStream(nil)
		require.NoError(t, err)
		defer streams[i].Close()
		b, err := AllocAsync[byte](streams[i], 1024)
		require.NoError(t, err)
		if i == 1 {
			defer gpu.Hold(streams[i])()
		}
		require.NoError(t, b.Close())
	}
	require.NoError(t, pool.Trim(0))
	require.Equal(t, map[*handle]struct{}{streams[1].h: {}}, d.freed.streams)
}
