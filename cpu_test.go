package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// What waits in the library while a stream is held up is asked for by one goroutine, and not
// by each by itself: the driver is called a few times in each millisecond, however much it is.
func TestWhatIsHeldUpAsksSeldom(t *testing.T) {
	for name, c := range map[string]struct {
		config cudatest.Config
		begin  func(t *testing.T, calls *counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) (ended []<-chan error)
	}{
		"2000 pinned buffers, closed in flight": {cudatest.Config{}, func(t *testing.T, calls *counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) []<-chan error {
			for range 2000 {
				h, err := cuda.AllocHost[uint32](s.Device(), 4, nil)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy(s, dst, h))
				require.NoError(t, h.Close())
			}
			becomes(t, func() bool { return calls.count("EventRecord") >= 2000 }) // one behind each
			return nil
		}},
		"2000 buffers of a device without pools": {cudatest.Config{NoMemoryPools: true}, func(t *testing.T, calls *counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) []<-chan error {
			other := newStream(t, s.Device(), nil)
			for range 2000 {
				b, err := cuda.AllocAsync[uint32](other, 4)
				require.NoError(t, err)
				require.NoError(t, cuda.Copy(s, dst, b))
				require.NoError(t, b.Close())
			}
			becomes(t, func() bool { return calls.count("EventRecord") >= 2000 }) // one behind each
			return nil
		}},
		"100 goroutines in CopyFromSlice": {cudatest.Config{}, func(t *testing.T, _ *counter, s *cuda.Stream, dst *cuda.Buffer[uint32]) (all []<-chan error) {
			for range 100 {
				all = append(all, started(func() error { return cuda.CopyFromSlice(t.Context(), s, dst, make([]uint32, 4)) }))
			}
			becomes(t, func() bool { return s.Device().Driver().WaitStats().Waiting >= 92 })
			return all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := simulatedDevices(t, c.config, nil)
			b, calls := counted(t, b, nil)
			s, dst := newStream(t, b.dev(), nil), alloc[uint32](t, b.dev(), 4)
			release := gpu.Hold(s)
			releasedAtEnd(t, release)
			ended := c.begin(t, calls, s, dst)
			time.Sleep(2 * soon) // a young wait is asked for more often
			const looked = 200 * time.Millisecond
			made := calls.during(func() { time.Sleep(looked) })
			sum := 0
			for _, n := range made {
				sum += n
			}
			require.LessOrEqual(t, sum, 20*int(looked/time.Millisecond), "%v", made)
			release()
			for _, e := range ended {
				require.NoError(t, told(t, e))
			}
			require.NoError(t, s.Synchronize())
		})
	}
}
