package stress_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// TestBlockedThreads shows what docs/waiting.md rejects: goroutines inside
// cuEventSynchronize hold a thread each. A process of its own does it, because the
// threads stay.
func TestBlockedThreads(t *testing.T) {
	skipShort(t)
	const variable, waits = "PURECUDA_TEST_BLOCK_THREADS", 2000
	drv := testgpu.RealDriver(t)
	if os.Getenv(variable) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestBlockedThreads$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		for line := range strings.Lines(string(out)) {
			if _, said, ok := strings.Cut(line, "threads: "); ok {
				t.Log(strings.TrimSpace(said))
			}
		}
		return
	}
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, e := testgpu.NewStream(t, dev, nil), testgpu.NewEvent(t, &cuda.EventOptions{Blocking: true})
	release := testgpu.Hold(t, s)
	require.NoError(t, e.Record(s))
	began, native := testgpu.Threads(), e.Handle()
	var wg sync.WaitGroup
	for range waits {
		wg.Go(func() {
			if r := drv.API().EventSynchronize(native); r != driver.Success {
				t.Error(r)
			}
		})
	}
	time.Sleep(time.Second)
	inside := testgpu.Threads()
	release()
	wg.Wait()
	time.Sleep(time.Second)
	t.Logf("threads: %d before, %d with %d goroutines in cuEventSynchronize, %d a second after", began, inside, waits, testgpu.Threads())
	require.Greater(t, testgpu.Threads(), began+waits/10, "it would be no reason then")
}

// However many waits begin, end or are cancelled at the same moment, they hold few
// threads, though the driver does one thing at a time.
func TestManyWaitsHoldFewThreads(t *testing.T) {
	skipShort(t)
	if testgpu.Threads() == 0 {
		t.Skip("the number of threads is not known here")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	const n = 3000
	for name, c := range map[string]struct {
		ctx  context.Context
		wait func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error
	}{
		"event":                 {context.Background(), func(ctx context.Context, e *cuda.Event, _ *cuda.Stream) error { return e.SynchronizeContext(ctx) }},
		"event, ended context":  {ended, func(ctx context.Context, e *cuda.Event, _ *cuda.Stream) error { return e.SynchronizeContext(ctx) }},
		"event, Done":           {context.Background(), func(_ context.Context, e *cuda.Event, _ *cuda.Stream) error { return <-e.Done() }},
		"stream":                {context.Background(), func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error { return s.SynchronizeContext(ctx) }},
		"stream, ended context": {ended, func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error { return s.SynchronizeContext(ctx) }},
		"device": {context.Background(), func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error {
			return s.Device().SynchronizeContext(ctx)
		}},
		"WaitAny, ended context": {ended, func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error {
			_, err := cuda.WaitAny(ctx, e, s)
			return err
		}},
		"WaitAll": {context.Background(), func(ctx context.Context, e *cuda.Event, s *cuda.Stream) error { return cuda.WaitAll(ctx, e, s) }},
		"WaitAll, of the devices": {context.Background(), func(ctx context.Context, _ *cuda.Event, s *cuda.Stream) error {
			return cuda.WaitAll(ctx, s, s.Device())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
			s := testgpu.NewStream(t, b.Device(), nil)
			release := gpu.Hold(s)
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(s))
			goroutines, began := runtime.NumGoroutine(), testgpu.Threads()
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
				testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Waiting >= n })
				release()
			}
			testgpu.Returns(t, wg.Wait)
			release()
			require.LessOrEqual(t, testgpu.Threads()-began, 16)
			testgpu.WaitUntil(t, func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
}

// A goroutine that polls holds a thread for as long as the driver takes, so of many that wait
// at once only a few poll.
func TestFewOfManyWaitsQuery(t *testing.T) {
	skipShort(t)
	for name, ended := range map[string]bool{"": false, "ended context": true} {
		t.Run(name, func(t *testing.T) {
			var asking atomic.Int32
			gate := make(chan struct{})
			_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				query := api.EventQuery
				api.EventQuery = func(e driver.Event) driver.Result {
					asking.Add(1)
					<-gate
					return query(e)
				}
			})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if ended {
				cancel()
			}
			s := testgpu.NewStream(t, b.Device(), nil)
			release := testgpu.Hold(t, s)
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(s))
			const crowd, few = 100, 10 // 8, and a poller or one whose context has ended
			var gone atomic.Int32
			var wg sync.WaitGroup
			for range crowd {
				wg.Go(func() {
					if err := e.SynchronizeContext(ctx); err != nil && !errors.Is(err, ctx.Err()) {
						t.Error(err)
					}
					gone.Add(1)
				})
			}
			defer testgpu.Returns(t, wg.Wait)
			defer release()
			defer close(gate)
			testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Waiting+int(gone.Load()) >= crowd-few })
			require.LessOrEqual(t, asking.Load(), int32(few))
		})
	}
}
