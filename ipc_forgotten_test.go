package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// An event whose handle was given out can be forgotten like any other, also if it was opened
// here by that handle. Who has opened it keeps it.
func TestForgottenEventsWithHandles(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	make := func() *cuda.Event {
		e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: d})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		again, err := d.OpenEvent(h, nil)
		require.NoError(t, err)
		require.Equal(t, e.Handle(), again.Handle())
		return again
	}
	again := make()
	for range 5 {
		runtime.GC()
	}
	require.NoError(t, again.Record(s))
	require.NoError(t, again.Synchronize())
	h, err := again.IPCHandle()
	require.NoError(t, err)
	require.NoError(t, again.Close())
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Streams: 1, Forgotten: 1} })
	testgpu.CollectUntil(t, func() bool { _, err := d.OpenEvent(h, nil); return err != nil }) // it was destroyed

	make() // neither was closed
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Streams: 1, Forgotten: 3} })
}
