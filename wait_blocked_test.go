package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// The driver holds up who enqueues on a stream whose queue is full. Waits for other work
// end all the same, also if a capture goes on or wants to begin.
func TestAFullQueueStopsNoWait(t *testing.T) {
	for name, enqueue := range map[string]func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()){
		"a wait, and then a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()) {
			waiting := started(full.Synchronize)
			<-held
			capture := started(func() error {
				g, err := captured.Capture(nil, func() error { return nil })
				return errors.Join(err, g.Close())
			})
			time.Sleep(20 * time.Millisecond) // until it wants to begin
			amid()
			require.NoError(t, told(t, capture))
			require.NoError(t, told(t, waiting))
		},
		"a record beside a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()) {
			e := newEvent(t, nil)
			g, err := captured.Capture(nil, func() error {
				recording := started(func() error { return e.Record(full) })
				<-held
				amid()
				return told(t, recording)
			})
			require.NoError(t, errors.Join(err, g.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := newStuck()
			var full driver.Stream
			gpu, b := simulatedDevices(t, cudatest.Config{Devices: 2}, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					if s == full {
						record.pass()
					}
					return bare(e, s)
				}
			})
			s, captured, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.devices[1], nil)
			releaseFull, releaseOther := gpu.Hold(s), gpu.Hold(other)
			e, shared := newEvent(t, nil), newEvent(t, &cuda.EventOptions{Interprocess: true})
			require.NoError(t, e.Record(other))
			require.NoError(t, shared.Record(other))
			waiting := []<-chan error{e.Done(), shared.Done(), other.Done()}
			parked(t, b.drv, len(waiting))
			full = s.Handle()
			open := record.close()
			enqueue(t, s, captured, record.in, func() {
				releaseOther()
				for _, done := range waiting {
					require.NoError(t, told(t, done))
				}
				open()
				releaseFull()
			})
		})
	}
}
