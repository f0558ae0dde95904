package cuda_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// From a hot method to the driver's table there is one function between, inlined ones
// counted: the public method, that of internal/native, and the table's function.
func TestHotCallsAreShort(t *testing.T) {
	var frames []string
	note := func() {
		pc := make([]uintptr, 64)
		frames = nil
		for all, more := runtime.CallersFrames(pc[:runtime.Callers(1, pc)]), true; more; {
			var f runtime.Frame
			f, more = all.Next()
			name, ours := strings.CutPrefix(f.Function, module)
			if ours && (strings.HasPrefix(name, ".(") || strings.HasPrefix(name, "/internal/native.")) {
				frames = append(frames, name)
			}
		}
	}
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result { note(); return bare.EventRecord(e, s) }
		api.EventQuery = func(e driver.Event) driver.Result { note(); return bare.EventQuery(e) }
		api.StreamQuery = func(s driver.Stream) driver.Result { note(); return bare.StreamQuery(s) }
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			note()
			return bare.StreamWaitEvent(s, e, flags)
		}
	})
	s, other, e := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewEvent(t, nil)
	for name, call := range map[string]func() error{
		"Event.Record":      func() error { return e.Record(s) },
		"Event.Wait":        func() error { return e.Wait(other) },
		"Event.Query":       func() error { _, err := e.Query(); return err },
		"Stream.Query":      func() error { _, err := s.Query(); return err },
		"Stream.WaitStream": func() error { return other.WaitStream(s) },
	} {
		require.NoError(t, e.Record(s))
		require.NoError(t, cuda.WaitAll(t.Context(), s, other))
		require.NoError(t, call()) // which makes what later ones use
		frames = nil
		require.NoError(t, call())
		require.Len(t, frames, 2, "%s: %v", name, frames)
	}
}
