package stress_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// One goroutine polls all that waits for a held stream: the driver is called a few times in
// each millisecond, however much it is.
func TestFewQueriesWhileAStreamIsHeld(t *testing.T) {
	skipShort(t)
	for name, c := range map[string]struct {
		config cudatest.Config
		begin  func(t *testing.T, calls *testgpu.Counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) (ended []<-chan error)
	}{
		"2000 pinned buffers, closed in flight": {cudatest.Config{QueueDepth: -1}, func(t *testing.T, calls *testgpu.Counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) []<-chan error {
			for range 2000 {
				h, err := cuda.AllocHost[uint32](s.Device(), 4, nil)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy(s, dst, h))
				require.NoError(t, h.Close())
			}
			testgpu.WaitUntil(t, func() bool { return calls.Count("EventRecord") >= 2000 }) // one behind each
			return nil
		}},
		"2000 buffers of a device without pools": {cudatest.Config{NoMemoryPools: true, QueueDepth: -1}, func(t *testing.T, calls *testgpu.Counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) []<-chan error {
			other := testgpu.NewStream(t, s.Device(), nil)
			for range 2000 {
				b, err := cuda.AllocAsync[uint32](other, 4)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy(s, dst, b))
				require.NoError(t, b.Close())
			}
			testgpu.WaitUntil(t, func() bool { return calls.Count("EventRecord") >= 2000 }) // one behind each
			return nil
		}},
		"100 goroutines in CopyFromSlice": {cudatest.Config{}, func(t *testing.T, _ *testgpu.Counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) (all []<-chan error) {
			for range 100 {
				all = append(all, testgpu.Go(func() error { return cuda.CopyFromSlice(t.Context(), s, dst, make([]uint32, 4)) }))
			}
			testgpu.WaitUntil(t, func() bool { return s.Device().Driver().WaitStats().Waiting >= 92 })
			return all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := testgpu.Simulated(t, c.config, nil)
			b, calls := testgpu.Counted(t, b, nil)
			s, dst := testgpu.NewStream(t, b.Device(), nil), testgpu.Alloc[uint32](t, b.Device(), 4)
			release := gpu.Hold(s)
			testgpu.ReleaseAtEnd(t, release)
			ended := c.begin(t, calls, s, dst)
			testgpu.WaitUntil(t, func() bool { // young waits are polled more often
				began, sum := time.Now(), 0
				for _, n := range calls.During(func() { time.Sleep(50 * time.Millisecond) }) {
					sum += n
				}
				return sum <= 10*int(time.Since(began).Milliseconds())
			})
			release()
			for _, e := range ended {
				require.NoError(t, testgpu.Receive(t, e))
			}
			require.NoError(t, s.Synchronize())
		})
	}
}
