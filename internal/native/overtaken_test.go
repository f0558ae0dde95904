package native_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A wait for a stream whose capture ends meanwhile is wholly inside it or wholly outside: it
// does not fail as if the caller had given it an event of the capture.
func TestWaitStreamBesideTheEnd(t *testing.T) {
	b := newHeldDevice(t, cudatest.Config{})
	s, o := b.stream(t), b.stream(t)
	m, err := cuda.Alloc[byte](b.Device, 4)
	require.NoError(t, err)
	var got, filled <-chan error
	arrived, open := b.holdNext("MemsetD8Async", false)
	g, err := s.Capture(func() error {
		filled = testgpu.Go(func() error { return cuda.Fill(o, m, 1) })
		<-arrived // in the driver
		got = testgpu.Go(func() error { return o.WaitStream(s) })
		time.Sleep(20 * time.Millisecond) // it wants to take o into the capture
		return nil
	})
	require.NoError(t, err)
	open()
	require.NoError(t, testgpu.Receive(t, filled))
	require.NoError(t, testgpu.Receive(t, got))
	require.NoError(t, g.Close())
	require.NoError(t, m.Close())
}

// Slices are copied while somebody asks the simulated GPU for its problems.
func TestProblemsBesideSliceCopies(t *testing.T) {
	b := newHeldDevice(t, cudatest.Config{})
	m, err := cuda.Alloc[byte](b.Device, 64)
	require.NoError(t, err)
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		s, err := b.NewStream(nil) // left open: closing it would hang too
		require.NoError(t, err)
		all.Go(func() {
			src := make([]byte, 64)
			for i := range 2000 {
				if err := cuda.CopyFromSlice(context.Background(), s, m, src); err != nil {
					t.Error(i, err)
					return
				}
			}
		})
	}
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.gpu.Problems()
			}
		}
	}()
	testgpu.Returns(t, all.Wait)
	close(stop)
}
