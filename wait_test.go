package cuda_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestWaitsInVirtualTime(t *testing.T) {
	waits := map[string]func(s *cuda.Stream, e *cuda.Event) error{
		"Event.Synchronize":         func(_ *cuda.Stream, e *cuda.Event) error { return e.Synchronize() },
		"Event.SynchronizeContext":  func(_ *cuda.Stream, e *cuda.Event) error { return e.SynchronizeContext(context.Background()) },
		"Event.Done":                func(_ *cuda.Stream, e *cuda.Event) error { return <-e.Done() },
		"Stream.Synchronize":        func(s *cuda.Stream, _ *cuda.Event) error { return s.Synchronize() },
		"Stream.SynchronizeContext": func(s *cuda.Stream, _ *cuda.Event) error { return s.SynchronizeContext(context.Background()) },
		"Device.Synchronize":        func(s *cuda.Stream, _ *cuda.Event) error { return s.Device().Synchronize() },
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
				s := testgpu.NewStream(t, d, nil)
				began := time.Now()
				gpu.Run(s, time.Minute)
				e := testgpu.NewEvent(t, nil)
				require.NoError(t, e.Record(s))
				require.NoError(t, wait(s, e))
				took := time.Since(began)
				require.GreaterOrEqual(t, took, time.Minute)
				require.Less(t, took, time.Minute+2*time.Millisecond)
			})
		})
	}
}

func TestCancelledWaitReturnsAtOnce(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s := testgpu.NewStream(t, d, nil)
		gpu.Run(s, time.Minute)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		for _, wait := range []func(context.Context) error{e.SynchronizeContext, s.SynchronizeContext} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			require.ErrorIs(t, wait(ctx), context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(began))
			cancel()
			require.ErrorIs(t, wait(ctx), context.DeadlineExceeded)
		}
		require.NoError(t, s.Synchronize())
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, e.SynchronizeContext(gone), "what is done needs no waiting")
	})
}

// The wait behind a forgotten channel ends with the work or with the event: no
// goroutine stays.
func TestForgottenDoneLeavesNothing(t *testing.T) {
	gpu, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	release := gpu.Hold(s)
	before := runtime.NumGoroutine()
	for i := range 100 {
		e, err := s.RecordEvent(nil)
		require.NoError(t, err)
		e.Done()
		if i%2 == 0 {
			require.NoError(t, e.Close())
		}
	}
	testgpu.CollectUntil(t, func() bool { return runtime.NumGoroutine() <= before+50 })
	require.Equal(t, 50, d.Driver().Stats().Events)
	release()
	testgpu.CollectUntil(t, func() bool { return runtime.NumGoroutine() <= before && d.Driver().Stats().Events == 0 })
}

// In virtual time too: closing wakes the wait at once.
func TestForgottenDoneInVirtualTime(t *testing.T) {
	testgpu.Bubble(t, func(t *testing.T, gpu *cudatest.GPU, d *cuda.Device) {
		s := testgpu.NewStream(t, d, nil)
		gpu.Run(s, time.Minute)
		e, err := s.RecordEvent(nil)
		require.NoError(t, err)
		e.Done()
		began := time.Now()
		require.NoError(t, e.Close())
		synctest.Wait()
		require.Zero(t, time.Since(began))
	})
}

// An event that only its wait still knows is not collected under it.
func TestCollectionDoesNotEndAWait(t *testing.T) {
	gpu, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	for _, wait := range []func() error{
		func() error {
			e := cuda.NewEvent(nil)
			if err := e.Record(s); err != nil {
				return err
			}
			return e.SynchronizeContext(context.Background())
		},
		func() error {
			e := cuda.NewEvent(nil)
			if err := e.Record(s); err != nil {
				return err
			}
			return <-e.Done()
		},
	} {
		release := gpu.Hold(s)
		result := make(chan error, 1)
		go func() { result <- wait() }()
		for range 20 {
			time.Sleep(time.Millisecond)
			runtime.GC()
		}
		select {
		case err := <-result:
			t.Fatalf("ended while the stream was busy: %v", err)
		default:
		}
		release()
		require.NoError(t, <-result)
	}
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Events == 0 })
}

func TestManyWaitsHalfCancelled(t *testing.T) {
	gpu, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	release := gpu.Hold(s)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(s))
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			defer cancel()
			if i%2 == 0 {
				if err := e.SynchronizeContext(context.Background()); err != nil {
					t.Error(err)
				}
				return
			}
			time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel)
			err := e.SynchronizeContext(ctx)
			if err == nil {
				return // completed first
			}
			if ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(testgpu.Soon)
	release()
	wg.Wait()
	testgpu.CollectUntil(t, func() bool { return runtime.NumGoroutine() <= before })
}

// A wait in virtual time leaves nothing that fails when the garbage collector, which is in
// no bubble, closes it.
func TestCollectionAfterAWaitInVirtualTime(t *testing.T) {
	var drv *cuda.Driver
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		var err error
		drv, err = cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		e, err := d.DefaultStream().RecordEvent(nil)
		require.NoError(t, err)
		require.NoError(t, e.SynchronizeContext(t.Context()))
	})
	testgpu.CollectUntil(t, func() bool { return drv.Stats() == cuda.Stats{Forgotten: 1} })
}
