package stress_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A stream whose capture ends, and is captured again by another goroutine at once, lets no call
// in beside the new capture.
func TestCapturesOfOneStreamInTurn(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "23 captures of one stream in turn", 1, func(t *testing.T, b *testgpu.Backend) {
		const captors, callers = 4, 4
		s := testgpu.NewStream(t, b.Device(), nil)
		deadline := time.Now().Add(duration(300 * time.Millisecond))
		var all sync.WaitGroup
		for range captors {
			all.Go(func() {
				for time.Now().Before(deadline) {
					g, err := s.Capture(func() error { return nil })
					if errors.Is(err, cuda.ErrCapturing) {
						runtime.Gosched()
						continue
					}
					if err == nil {
						err = g.Close()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range callers {
			all.Go(func() {
				for time.Now().Before(deadline) {
					if _, err := s.Query(); err != nil && !errors.Is(err, cuda.ErrCapturing) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, s.Synchronize())
	})
}
