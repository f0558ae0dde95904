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
