package cuda

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
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

// A wait for a stream ends with the driver's own wait if something has happened on it
// since the last one, and only then.
func TestWaitsConcludeOnce(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	concluded := 0
	wait := api.EventSynchronize
	api.EventSynchronize = func(e driver.Event) driver.Result {
		concluded++
		return wait(e)
	}
	drv, err := OpenDriver(&api)
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte(kernels.PTX))
	require.NoError(t, err)
	k, err := m.Kernel("purecuda_empty")
	require.NoError(t, err)
	for _, happens := range []func() error{
		func() error { return k.Launch(s, Grid1D(1, 1)) },
		func() error { return errors.Join(k.Launch(s, Grid1D(1, 1)), k.Launch(s, Grid1D(1, 1))) },
		func() error {
			b, err := AllocAsync[byte](s, 1)
			return errors.Join(err, b.Close())
		},
	} {
		before := concluded
		for range 3 {
			require.NoError(t, happens())
			require.NoError(t, s.Synchronize())
			require.NoError(t, s.Synchronize())
		}
		require.Equal(t, before+3, concluded)
	}
	require.NoError(t, m.Close())
	require.NoError(t, s.Close())
	gpu.Check(t)
}
