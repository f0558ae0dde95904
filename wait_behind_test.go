package cuda_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The driver may take long to make an event, beside a busy device or another
// thread. Who cancels, closes, or waits for something else does not wait for that.
func TestNobodyWaitsBehindEventCreate(t *testing.T) {
	create := testgpu.NewGate()
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.EventCreate
		api.EventCreate = func(f uint32) (driver.Event, driver.Result) { create.Pass(); return bare(f) }
	})
	var streams [5]*cuda.Stream
	var releases [5]func()
	for i := range streams {
		streams[i] = testgpu.NewStream(t, b.Device(), nil)
		releases[i] = testgpu.Hold(t, streams[i])
	}
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(streams[0]))
	waiting := testgpu.Go(e.Synchronize)
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := testgpu.Go(func() error { return streams[1].SynchronizeContext(ctx) })
	closing, done := streams[2].Done(), streams[3].Done()
	testgpu.Parked(t, b.Driver, 4)
	release := create.Close()
	other := testgpu.Go(streams[4].Synchronize)
	<-create.Entered
	cancel()
	require.ErrorIs(t, testgpu.Receive(t, cancelled), context.Canceled)
	require.NoError(t, testgpu.Receive(t, testgpu.Go(streams[2].Close)))
	require.ErrorIs(t, testgpu.Receive(t, closing), cuda.ErrClosed)
	releases[3]() // gives an event back
	require.NoError(t, testgpu.Receive(t, done))
	releases[0]()
	require.NoError(t, testgpu.Receive(t, waiting))
	release()
	for _, r := range releases {
		r()
	}
	require.NoError(t, testgpu.Receive(t, other))
}

// WaitAll asks for each a few times, however many are done already, and looks at its
// context meanwhile.
func TestWaitAllAsksLittle(t *testing.T) {
	_, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	busy, idle := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
	release := testgpu.Hold(t, busy)
	defer release()
	const n = 1000
	var work []cuda.Waitable
	for i := range 2 * n {
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record([]*cuda.Stream{busy, idle}[i/n]))
		work = append(work, e)
	}
	before := b.Driver.WaitStats().Queries
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, cuda.WaitAll(ctx, work...), context.DeadlineExceeded)
	require.Less(t, b.Driver.WaitStats().Queries-before, uint64(20*n))
}
