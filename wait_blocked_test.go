package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The driver holds up who enqueues on a stream whose queue is full. Waits for other work
// end all the same, also if a capture goes on or wants to begin.
func TestAFullQueueStopsNoWait(t *testing.T) {
	for name, enqueue := range map[string]func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()){
		"a wait, and then a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()) {
			waiting := testgpu.Go(full.Synchronize)
			<-held
			capture := testgpu.Go(func() error {
				g, err := captured.Capture(func() error { return nil })
				return errors.Join(err, g.Close())
			})
			time.Sleep(20 * time.Millisecond) // until it wants to begin
			amid()
			require.NoError(t, testgpu.Receive(t, capture))
			require.NoError(t, testgpu.Receive(t, waiting))
		},
		"a record beside a capture": func(t *testing.T, full, captured *cuda.Stream, held <-chan struct{}, amid func()) {
			e := testgpu.NewEvent(t, nil)
			g, err := captured.Capture(func() error {
				recording := testgpu.Go(func() error { return e.Record(full) })
				<-held
				amid()
				return testgpu.Receive(t, recording)
			})
			require.NoError(t, errors.Join(err, g.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := testgpu.NewGate()
			var full driver.Stream
			gpu, b := testgpu.Simulated(t, cudatest.Config{Devices: 2}, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					if s == full {
						record.Pass()
					}
					return bare(e, s)
				}
			})
			s, captured, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Devices[1], nil)
			releaseFull, releaseOther := gpu.Hold(s), gpu.Hold(other)
			e, shared := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true})
			require.NoError(t, e.Record(other))
			require.NoError(t, shared.Record(other))
			waiting := []<-chan error{e.Done(), shared.Done(), other.Done()}
			testgpu.Parked(t, b.Driver, len(waiting))
			full = s.Handle()
			open := record.Close()
			enqueue(t, s, captured, record.Entered, func() {
				releaseOther()
				for _, done := range waiting {
					require.NoError(t, testgpu.Receive(t, done))
				}
				open()
				releaseFull()
			})
		})
	}
}

// A record that the driver holds up, as the queue of its stream is full, holds up nobody who
// has nothing to do with that stream, whether a capture goes on or not.
func TestAFullQueueHoldsUpNobodyElse(t *testing.T) {
	for name, inCapture := range map[string]bool{"": false, "beside a capture": true} {
		t.Run(name, func(t *testing.T) {
			record := testgpu.NewGate()
			var full driver.Stream
			_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					if s == full {
						record.Pass()
					}
					return bare(e, s)
				}
			})
			d := b.Device()
			s, other, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			captured := testgpu.NewStream(t, d, nil)
			onFull, onOther, old := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
			require.NoError(t, errors.Join(onFull.Record(s), old.Record(other)))
			buf, pooled := testgpu.Alloc[uint32](t, d, 4), testgpu.AllocAsync[uint32](t, other, 4)
			full = s.Handle()
			others := func() error {
				open := record.Close()
				recording := testgpu.Go(func() error { return onFull.Record(s) })
				<-record.Entered
				for what, f := range map[string]func() error{
					"record":                 func() error { return onOther.Record(other) },
					"wait":                   func() error { return old.Wait(third) },
					"WaitStream":             func() error { return third.WaitStream(other) },
					"event query":            func() error { _, err := old.Query(); return err },
					"event synchronize":      old.Synchronize,
					"stream query":           func() error { _, err := other.Query(); return err },
					"stream synchronize":     other.Synchronize,
					"query of what it holds": func() error { _, err := onFull.Query(); return err },
					"fill":                   func() error { return cuda.Fill(other, buf, 1) },
					"slice":                  func() error { return cuda.CopyToSlice(t.Context(), other, make([]uint32, 4), buf) },
					"free":                   func() error { return errors.Join(cuda.Fill(third, pooled, 1), pooled.Close()) },
					"alloc": func() error {
						b, err := cuda.AllocAsync[uint32](other, 4)
						return errors.Join(err, b.Close())
					},
					"stream": func() error { s, err := d.NewStream(nil); return errors.Join(err, s.Close()) },
					"event":  func() error { e := cuda.NewEvent(nil); return errors.Join(e.Record(third), e.Close()) },
					"capture": func() error {
						g, err := third.Capture(func() error { return cuda.Fill(third, buf, 1) })
						return errors.Join(err, g.Close())
					},
				} {
					require.NoError(t, testgpu.Receive(t, testgpu.Go(f)), what)
				}
				testgpu.NotReady(t, recording)
				open()
				return testgpu.Receive(t, recording)
			}
			if !inCapture {
				require.NoError(t, others())
				return
			}
			g, err := captured.Capture(others)
			require.NoError(t, errors.Join(err, g.Close()))
		})
	}
}
