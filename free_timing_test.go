package cuda_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing memory that another stream uses delays no stream: work at home and on the other
// stream goes on side by side, and what the other stream is given later delays nobody.
func TestFreesDelayNobody(t *testing.T) {
	const rounds, step = 20, time.Millisecond
	for name, c := range map[string]struct {
		later time.Duration // work that the using stream is given after the first round
		users int
		want  time.Duration
	}{
		"computed here, copied out there": {0, 1, (rounds + 2) * step},
		"used by three streams":           {0, 3, (rounds + 2) * step},
		"an hour of other work":           {time.Hour, 1, rounds*step + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gpu := cudatest.New(cudatest.Config{})
				drv, err := cuda.OpenDriver(gpu.API())
				require.NoError(t, err)
				d, err := drv.OpenDevice(0)
				require.NoError(t, err)
				home := testgpu.NewStream(t, d, nil)
				var users []*cuda.Stream
				for range c.users {
					users = append(users, testgpu.NewStream(t, d, nil))
				}
				began := time.Now()
				for i := range rounds {
					b, err := cuda.AllocAsync[uint32](home, 1024)
					require.NoError(t, err)
					gpu.Run(home, step)
					for _, u := range users {
						require.NoError(t, u.WaitStream(home))
						gpu.Run(u, step)
						require.NoError(t, b.RecordStream(u))
					}
					require.NoError(t, b.Close())
					if c.later > 0 && i == 0 {
						gpu.Run(users[0], c.later)
					}
				}
				require.NoError(t, home.Synchronize())
				require.LessOrEqual(t, time.Since(began), c.want)
				for _, u := range users {
					require.NoError(t, u.Synchronize())
				}
				if c.later == 0 {
					require.LessOrEqual(t, time.Since(began), c.want)
				}
				for drv.Stats().Buffers > 0 { // freed when the uses are done
					time.Sleep(time.Millisecond)
				}
			})
		})
	}
}

// The same on a GPU: a kernel at home, and a copy of its memory to the host on another
// stream. It says what a round takes, and what the pool has come to.
func TestComputeAndCopyOut(t *testing.T) {
	drv := testgpu.RealDriver(t)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	const rounds, size, spinning = 200, 16 << 20, 330_000
	home, reader := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	spin := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_spin")
	out := testgpu.AllocHost[byte](t, d, size)
	pool, err := d.MemoryPool()
	require.NoError(t, err)
	require.NoError(t, pool.Trim(0))
	require.NoError(t, pool.ResetHigh())
	took := func(compute, copied bool) time.Duration {
		began := time.Now()
		for range rounds {
			b, err := cuda.AllocAsync[byte](home, size)
			require.NoError(t, err)
			if compute {
				require.NoError(t, spin.Launch(home, cuda.Grid1D(1, 1), uint64(spinning)))
			}
			if copied {
				require.NoError(t, reader.WaitStream(home))
				require.NoError(t, cuda.Copy(reader, out, b))
			}
			require.NoError(t, b.Close())
		}
		require.NoError(t, home.Synchronize())
		require.NoError(t, reader.Synchronize())
		return time.Since(began) / rounds
	}
	took(true, true)
	alone, copying, both := took(true, false), took(false, true), took(true, true)
	stats, err := pool.Stats()
	require.NoError(t, err)
	t.Logf("a round: kernel alone %v, copy alone %v, both %v; the pool has reserved %d MiB at most", alone, copying, both, stats.ReservedHigh>>20)
	require.Less(t, both, alone+copying, "they overlap")
	testgpu.CollectUntil(t, func() bool { return drv.Stats().Buffers == 0 })
}
