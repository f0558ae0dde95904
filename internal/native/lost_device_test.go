package native_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The device is lost while a call is in the driver: nothing hangs or leaks, and each waiter and
// callback gets the error.
func TestLostInTheMiddle(t *testing.T) {
	for _, version := range []int{0, 12000} {
		for _, function := range []string{"EventRecord", "StreamWaitEvent", "EventQuery", "MemFreeAsync", "MemAllocFromPoolAsync",
			"StreamBeginCapture", "StreamEndCapture", "GraphLaunch", "LaunchHostFunc", "EventCreate", "CtxRecordEvent", "EventSynchronize",
			"GraphInstantiateWithFlags", "MemFreeHost", "MemHostAlloc", "StreamDestroy", "StreamCreateWithPriority", "MemcpyAsync", "GraphExecDestroy", "GraphDestroy", "EventDestroy"} {
			for _, after := range []bool{false, true} {
				where := "before "
				if after {
					where = "after "
				}
				t.Run(where+function, func(t *testing.T) { lostIn(t, version, function, after) })
			}
		}
	}
}

func lostIn(t *testing.T, version int, function string, after bool) {
	b := newHeldDevice(t, cudatest.Config{DriverVersion: version})
	b.Driver().OnCleanupError(func(error) {})
	s, err := b.NewStream(nil)
	require.NoError(t, err)
	o, err := b.NewStream(nil)
	require.NoError(t, err)
	spare, err := b.NewStream(nil)
	require.NoError(t, err)
	spare.Handle()
	var launched, called, freed atomic.Int32
	e := cuda.NewEvent(nil)
	arrived, open := b.holdNext(function, after)
	calls := make(chan struct{})
	go func() {
		defer close(calls)
		for range 3 {
			h, err := cuda.AllocHost[byte](b.Device, 64, nil)
			if err == nil {
				h.AfterFree(func() { freed.Add(1) })
			} else {
				freed.Add(1)
			}
			m, merr := cuda.AllocAsync[byte](s, 64)
			_ = o.WaitStream(s)
			if merr == nil && err == nil {
				_ = cuda.Copy(o, m, h)
			}
			_ = e.Record(o)
			_ = e.Wait(s)
			_, _ = e.Query()
			if s.LaunchHostFunc(func(error) { called.Add(1) }) == nil {
				launched.Add(1)
			}
			g, gerr := s.Capture(func() error {
				_ = o.WaitStream(s)
				if merr == nil && err == nil {
					_ = cuda.Copy(o, m, h)
				}
				return s.WaitStream(o)
			})
			if gerr == nil {
				x, err := g.Instantiate()
				if err == nil {
					_ = x.Launch(s)
					_ = x.Close()
				}
				_ = g.Close()
			}
			if merr == nil {
				_ = m.Close()
			}
			if err == nil {
				_ = h.Close()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = e.SynchronizeContext(ctx)
			_ = b.SynchronizeContext(ctx)
			if ctx.Err() != nil {
				t.Error("waits do not end")
			}
			cancel()
			if n, err := b.NewStream(nil); err == nil {
				_ = n.Close()
			}
			u := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
			_ = u.Record(s)
			_ = u.Close()
			runtime.GC()
		}
	}()
	select {
	case <-arrived:
	case <-calls: // it is not called
	}
	func() {
		defer func() { recover() }()
		b.gpu.Fault(cudatest.Handle(spare.Handle()), driver.ErrorIllegalAddress)
	}()
	time.Sleep(time.Millisecond)
	open()
	testgpu.Returns(t, func() { <-calls })
	_ = e.Close()
	for _, x := range []*cuda.Stream{s, o, spare} {
		_ = x.Close()
	}
	var stats cuda.Stats
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		runtime.GC()
		stats = b.Driver().Stats()
		if stats == (cuda.Stats{}) && launched.Load() == called.Load() && freed.Load() == 3 {
			return
		}
	}
	t.Errorf("%+v; host functions: %d launched, %d called; %d host buffers freed", stats, launched.Load(), called.Load(), freed.Load())
}
