package stress_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Events come and go on several goroutines, which see only their own.
func TestEventsComeAndGo(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "17 events of many goroutines", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		var all sync.WaitGroup
		deadline := time.Now().Add(duration(200 * time.Millisecond))
		for range 8 {
			s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			all.Go(func() {
				for time.Now().Before(deadline) {
					e := cuda.NewEvent(nil)
					var pair sync.WaitGroup
					pair.Go(func() { _, _ = e.Query(); _ = e.Wait(other); _ = e.Synchronize() })
					for range 2 {
						if err := e.Record(s); err != nil {
							t.Error(err)
						}
					}
					if err := e.Synchronize(); err != nil {
						t.Error(err)
					}
					if done, err := e.Query(); !done || err != nil {
						t.Error(done, err)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					pair.Wait()
					if _, err := e.Query(); !errors.Is(err, cuda.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// All that can be done with an event, at once.
func TestEverythingAtOnce(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "24 everything at once", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		var streams [4]*cuda.Stream
		for i := range streams {
			streams[i] = testgpu.NewStream(t, d, nil)
		}
		deadline := time.Now().Add(duration(500 * time.Millisecond))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for time.Now().Before(deadline) {
					e := cuda.NewEvent(testgpu.Timed())
					var w sync.WaitGroup
					for i, s := range streams {
						w.Go(func() { _ = e.Record(s); _, _ = e.Query(); _ = e.Wait(streams[(i+1)%4]) })
					}
					w.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
						defer cancel()
						_ = e.SynchronizeContext(ctx)
					})
					w.Go(func() { _ = e.Synchronize() })
					w.Go(func() { _, _ = e.ElapsedTime(e); _ = e.String(); _ = e.Device() })
					w.Go(func() { <-e.Done() })
					w.Go(func() { _ = streams[0].WaitStream(streams[1]); _ = streams[2].Synchronize() })
					w.Go(func() { _ = e.Close() })
					w.Wait()
				}
			})
		}
		all.Go(func() {
			for time.Now().Before(deadline) {
				if g, err := streams[3].Capture(func() error {
					e := cuda.NewEvent(nil)
					defer e.Close()
					return e.Record(streams[3])
				}); err == nil {
					_ = g.Close()
				}
				time.Sleep(time.Millisecond)
			}
		})
		all.Wait()
		require.Zero(t, b.Driver.Stats().Events)
		for _, s := range streams {
			require.NoError(t, s.Synchronize())
		}
	})
}

// Events that some wait for while others record them, in captures and outside, and take
// them away: no capture is ended by it.
func TestCapturesDuringAStorm(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "23 no call on an event ends another's capture", 1, func(t *testing.T, b *testgpu.Backend) {
		var events [4]atomic.Pointer[cuda.Event]
		for i := range events {
			events[i].Store(cuda.NewEvent(nil))
		}
		fine := func(err error) {
			for _, e := range []error{nil, cuda.ErrClosed, cuda.ErrCaptured, context.DeadlineExceeded} {
				if errors.Is(err, e) {
					return
				}
			}
			t.Error(err)
		}
		deadline := time.Now().Add(duration(500 * time.Millisecond))
		var all sync.WaitGroup
		for range 6 {
			s := testgpu.NewStream(t, b.Device(), nil)
			all.Go(func() {
				for time.Now().Before(deadline) {
					i := rand.IntN(len(events))
					e := events[i].Load()
					switch rand.IntN(8) {
					case 0, 1:
						fine(e.Record(s))
					case 2:
						fine(e.Synchronize())
					case 3:
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(100))*time.Microsecond)
						fine(e.SynchronizeContext(ctx))
						cancel()
					case 4:
						e.Done()
					case 5:
						_, err := e.Query()
						fine(err)
					case 6:
						g, err := s.Capture(func() error {
							for range 5 {
								fine(e.Record(s))
							}
							return nil
						})
						if err := errors.Join(err, g.Close()); err != nil {
							t.Error(err)
						}
					default:
						fine(events[i].Swap(cuda.NewEvent(nil)).Close())
					}
				}
			})
		}
		testgpu.Returns(t, all.Wait)
		for i := range events {
			require.NoError(t, events[i].Load().Close())
		}
	})
}
