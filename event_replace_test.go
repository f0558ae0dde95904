package cuda_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A record that gives the event another native event, because somebody waits for the old
// one, does not undo the record of another goroutine that comes and goes meanwhile.
func TestNoRecordIsLostToAnother(t *testing.T) {
	var behind testgpu.Hook
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		record := api.EventRecord
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			r := record(e, s)
			behind.Run()
			return r
		}
	})
	s, held, reader := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	b, out := testgpu.Filled(t, s, 1), testgpu.AllocHost[uint32](t, d, 1)
	require.NoError(t, s.Synchronize())
	e := testgpu.NewEvent(t, nil)
	defer gpu.Hold(held)()
	require.NoError(t, e.Record(held))
	ctx, cancel := context.WithCancel(context.Background())
	waiting := testgpu.Go(func() error { return e.SynchronizeContext(ctx) })
	testgpu.Parked(t, d.Driver(), 1)
	release := func() {}
	defer func() { release() }()
	behind.Next(func() { // another goroutine, after the driver has recorded for the first
		cancel()
		require.ErrorIs(t, testgpu.Receive(t, waiting), context.Canceled)
		release = gpu.Hold(s)
		require.NoError(t, cuda.Fill(s, b, 2))
		require.NoError(t, e.Record(s))
		require.False(t, testgpu.Query(t, e))
	})
	require.NoError(t, e.Record(s))
	require.False(t, testgpu.Query(t, e))
	require.NoError(t, e.Wait(reader))
	part, err := b.Range(0, 1)
	require.NoError(t, err)
	require.NoError(t, cuda.Copy[uint32](reader, out, part))
	release()
	require.NoError(t, reader.Synchronize())
	require.Equal(t, uint32(2), out.Slice()[0])
}
