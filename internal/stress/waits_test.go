package stress_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// stage is a stream on which events alternate with holds that are released one
// after the other.
type stage struct {
	stream   *cuda.Stream
	events   []*cuda.Event
	releases []func()
	released atomic.Int32 // counted before each release, so that nothing ends before
}

// play releases the holds at random moments.
func (s *stage) play() {
	for _, release := range s.releases {
		time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
		s.released.Add(1)
		release()
	}
}

// stormWait is a wait that says which stages must have come how far when it ends.
type stormWait func(ctx context.Context, at *stage, i int) (over func() bool, err error)

// stormWaits are the kinds of waits. Event i of a stage is done after release i.
func stormWaits(stages []*stage) []stormWait {
	past := func(s *stage, i int) bool { return int(s.released.Load()) > i }
	other := func() (*stage, int) {
		s := stages[rand.IntN(len(stages))]
		return s, rand.IntN(len(s.events))
	}
	receive := func(ctx context.Context, done <-chan error) error {
		select {
		case err := <-done:
			return err
		case <-ctx.Done(): // and the channel is forgotten
			return ctx.Err()
		}
	}
	event := func(ctx context.Context, s *stage, i int) (func() bool, error) {
		return func() bool { return past(s, i) }, s.events[i].SynchronizeContext(ctx)
	}
	return []stormWait{
		event,
		event,
		event,
		func(ctx context.Context, s *stage, i int) (func() bool, error) {
			return func() bool { return past(s, i) }, receive(ctx, s.events[i].Done())
		},
		func(ctx context.Context, s *stage, _ int) (func() bool, error) {
			return func() bool { return past(s, len(s.events)-1) }, s.stream.SynchronizeContext(ctx)
		},
		func(ctx context.Context, s *stage, _ int) (func() bool, error) {
			return func() bool { return past(s, len(s.events)-1) }, receive(ctx, s.stream.Done())
		},
		func(ctx context.Context, s *stage, i int) (func() bool, error) {
			if i > 0 { // each is asked for by itself
				return event(ctx, s, i)
			}
			return func() bool {
				for _, s := range stages {
					if !past(s, len(s.events)-1) {
						return false
					}
				}
				return true
			}, s.stream.Device().SynchronizeContext(ctx)
		},
		func(ctx context.Context, s *stage, i int) (func() bool, error) {
			o, j := other()
			which, err := cuda.WaitAny(ctx, s.events[i], o.events[j])
			return func() bool { return which == 0 && past(s, i) || which == 1 && past(o, j) }, err
		},
		func(ctx context.Context, s *stage, i int) (func() bool, error) {
			o, j := other()
			err := cuda.WaitAll(ctx, s.events[i], o.events[j])
			return func() bool { return past(s, i) && past(o, j) }, err
		},
	}
}

// Of very many waits of all kinds, half are cancelled at any moment. All return:
// those that succeed when their work is done and not before.
func TestCancelStorm(t *testing.T) {
	skipShort(t)
	const streams, events, crowd = 50, 4, 5000 // the race detector takes no more than 8000 goroutines
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	stages := make([]*stage, streams)
	for i := range stages {
		stages[i] = &stage{stream: testgpu.NewStream(t, b.Device(), nil)}
		for range events {
			stages[i].events = append(stages[i].events, testgpu.NewEvent(t, nil))
		}
	}
	kinds := stormWaits(stages)
	useProcessors()
	goroutines, began, most := runtime.NumGoroutine(), testgpu.Threads(), 0
	handles := b.Driver.Stats()
	handles.Events += streams * events
	rounds := 0
	for deadline := time.Now().Add(duration(0)); rounds < 5 || time.Now().Before(deadline); rounds++ {
		stormRound(t, gpu, stages, kinds, crowd)
		most = max(most, testgpu.Threads())
		testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Waiting == 0 })
	}
	require.LessOrEqual(t, most-began, 16, "threads")
	testgpu.NoWaits(t, b.Driver)
	testgpu.WaitUntil(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	require.Equal(t, handles, b.Driver.Stats())
	s := b.Driver.WaitStats()
	t.Logf("%d waits: %+v", rounds*crowd, s)
	require.NotZero(t, s.Cancelled)
	require.LessOrEqual(t, s.Woken, s.Parked)
	pairs := uint64(rounds * crowd * 2 / len(kinds)) // of which one may be left when the other is over
	require.LessOrEqual(t, s.Parked, s.Woken+s.Cancelled+pairs+uint64(rounds*crowd/len(kinds)))
}

func stormRound(t *testing.T, gpu *cudatest.GPU, stages []*stage, kinds []stormWait, n int) {
	var wg sync.WaitGroup
	for _, s := range stages {
		s.releases, s.released = nil, atomic.Int32{}
		for _, e := range s.events {
			s.releases = append(s.releases, gpu.Hold(s.stream))
			require.NoError(t, e.Record(s.stream))
		}
	}
	for _, s := range stages {
		wg.Go(s.play)
	}
	for i := range n {
		ctx := context.Background()
		if i%2 == 0 {
			c, cancel := context.WithCancel(context.Background())
			stop := time.AfterFunc(time.Duration(rand.IntN(30_000))*time.Microsecond, cancel)
			defer stop.Stop()
			defer cancel()
			ctx = c
		}
		kind, s, which := i/2%len(kinds), stages[rand.IntN(len(stages))], rand.IntN(len(stages[0].events))
		wg.Go(func() {
			over, err := kinds[kind](ctx, s, which)
			switch {
			case err == nil && !over():
				t.Errorf("a wait of kind %d for event %d ended too early", kind, which)
			case err == nil:
			case ctx.Err() == nil || !errors.Is(err, context.Canceled):
				t.Error(fmt.Errorf("a wait of kind %d: %w", kind, err))
			}
		})
	}
	testgpu.Returns(t, wg.Wait)
}
