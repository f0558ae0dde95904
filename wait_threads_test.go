package cuda_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// However many waits begin, end or are cancelled at the same moment, they hold few
// threads, though the driver does one thing at a time.
func TestCrowdsHoldFewThreads(t *testing.T) {
	if threads() == 0 {
		t.Skip("the number of threads is not known here")
	}
	ended, cancel := context.WithCancel(ctxBackground)
	cancel()
	const n = 3000
	for name, c := range map[string]struct {
		ctx  context.Context
		wait func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error
	}{
		"event":                 {ctxBackground, func(ctx context.Context, e *cuda.Event, _ *cuda.Stream) error { return e.SynchronizeContext(ctx) }},
		"event, ended context":  {ended, func(ctx context.Context, e *cuda.Event, _ *cuda.Stream) error { return e.SynchronizeContext(ctx) }},
		"event, Done":           {ctxBackground, func(_ context.Context, e *cuda.Event, _ *cuda.Stream) error { return <-e.Done() }},
		"stream":                {ctxBackground, func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error { return s.SynchronizeContext(ctx) }},
		"stream, ended context": {ended, func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error { return s.SynchronizeContext(ctx) }},
		"device": {ctxBackground, func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error {
			return s.Device().SynchronizeContext(ctx)
		}},
		"WaitAny, ended context": {ended, func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error {
			_, err := cuda.WaitAny(ctx, e, s)
			return err
		}},
		"WaitAll": {ctxBackground, func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error { return cuda.WaitAll(ctx, e, s) }},
		"WaitAll, of the devices": {ctxBackground, func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error {
			return cuda.WaitAll(ctx, s, s.Device())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := simulatedDevices(t, cudatest.Config{}, nil)
			s := newStream(t, b.dev(), nil)
			release := gpu.Hold(s)
			e := newEvent(t, nil)
			require.NoError(t, e.Record(s))
			goroutines, began := runtime.NumGoroutine(), threads()
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					<-begin
					if err := c.wait(c.ctx, e, s); !errors.Is(err, c.ctx.Err()) {
						t.Error(err)
					}
				})
			}
			close(begin)
			if c.ctx.Err() == nil {
				becomes(t, func() bool { return b.drv.WaitStats().Waiting >= n })
				release()
			}
			returns(t, wg.Wait)
			release()
			require.LessOrEqual(t, threads()-began, 16)
			becomes(t, func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
}
