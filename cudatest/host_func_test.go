package cudatest

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// hostFunc enqueues f.
func (b *bed) hostFunc(s driver.Stream, f func()) {
	b.t.Helper()
	b.ok(b.LaunchHostFunc(s, driver.NewHostFunc(f)))
}

func TestHostFuncTakesItsTime(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
		e := b.event(0, driver.EventDisableTiming)
		start := time.Now()
		var called time.Duration
		b.gpu.Run(Handle(s), 5*ms)
		b.hostFunc(s, func() {
			called = time.Since(start)
			time.Sleep(10 * ms)
		})
		b.gpu.Run(Handle(s), 3*ms)
		b.ok(b.EventRecord(e, s))
		b.ok(b.StreamWaitEvent(u, e, 0))
		b.gpu.Run(Handle(u), 2*ms)
		b.ok(b.StreamSynchronize(u))
		require.Equal(t, 20*ms, time.Since(start))
		require.Equal(t, 5*ms, called)
	})
}

// Nobody asks the driver; the functions of a device still run, one at a time.
func TestHostFuncsOfADevice(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u, far := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
		var running, most, calls atomic.Int32
		f := func() {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(ms)
			running.Add(-1)
			calls.Add(1)
		}
		for range 5 {
			b.hostFunc(s, f)
			b.hostFunc(u, f)
		}
		time.Sleep(9*ms + ms/2)
		require.EqualValues(t, 9, calls.Load())
		time.Sleep(ms)
		require.EqualValues(t, 10, calls.Load())
		require.EqualValues(t, 1, most.Load())
		b.hostFunc(s, f)
		b.hostFunc(far, f)
		time.Sleep(ms / 2)
		require.EqualValues(t, 2, running.Load(), "two devices")
		time.Sleep(ms) // a bubble must not end while a function runs
	})
}

func TestHostFuncBehindAFault(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u, other := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
		e := b.event(0, driver.EventDisableTiming)
		var calls atomic.Int32
		f := func() { calls.Add(1) }
		b.gpu.Run(Handle(s), 2*ms)
		b.hostFunc(s, f)
		b.ok(b.EventRecord(e, s))
		b.ok(b.StreamWaitEvent(other, e, 0))
		b.gpu.Run(Handle(u), ms)
		b.gpu.Fault(Handle(u), driver.ErrorLaunchFailed)
		time.Sleep(5 * ms)
		synctest.Wait()
		require.Zero(t, calls.Load())
		require.Equal(t, driver.ErrorLaunchFailed, b.LaunchHostFunc(s, 1))
		b.ok(b.StreamQuery(other))
	})
}

// A function that runs when its context fails comes to its end.
func TestFaultBesideHostFunc(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		var calls atomic.Int32
		b.hostFunc(s, func() {
			time.Sleep(5 * ms)
			calls.Add(1)
		})
		b.hostFunc(s, func() { calls.Add(1) })
		b.gpu.Run(Handle(u), ms)
		b.gpu.Fault(Handle(u), driver.ErrorLaunchFailed)
		require.Equal(t, ms, took(func() { require.Equal(t, driver.ErrorLaunchFailed, b.StreamSynchronize(s)) }))
		time.Sleep(10 * ms)
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestKillStopsHostFuncs(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, u := a.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		var mine, theirs atomic.Int32
		a.hostFunc(s, func() {
			time.Sleep(5 * ms)
			theirs.Add(1)
		})
		a.hostFunc(s, func() { theirs.Add(1) })
		b.gpu.Run(Handle(u), 2*ms)
		b.hostFunc(u, func() { mine.Add(1) })
		time.Sleep(ms)
		p.Kill()
		time.Sleep(10 * ms)
		require.EqualValues(t, 1, theirs.Load(), "the one that ran")
		require.EqualValues(t, 1, mine.Load())
		b.ok(b.StreamSynchronize(u))
	})
}

// A function that ends its goroutine, as t.FailNow does, has returned.
func TestHostFuncEndsItsGoroutine(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	b.hostFunc(s, runtime.Goexit)
	b.ok(b.StreamSynchronize(s))
}

func TestHostFuncMayNotCallTheDriver(t *testing.T) {
	b := newBed(t, Config{})
	s, u, e := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.event(0, 0)
	var answers []driver.Result
	var status driver.Result
	b.hostFunc(s, func() {
		_, r := b.DeviceGetCount()
		answers = []driver.Result{r, b.CtxPushCurrent(b.ctx[0]), b.StreamSynchronize(u), b.EventSynchronize(e), b.MemsetD8Async(0, 0, 0, u), b.EventDestroy(e)}
		status = max(b.EventRecord(e, u), b.EventQuery(e))
	})
	b.ok(b.StreamSynchronize(s))
	for i, r := range answers {
		require.Equal(t, driver.ErrorNotPermitted, r, i)
	}
	require.Contains(t, []driver.Result{driver.Success, driver.ErrorNotReady}, status)
	problems := b.gpu.Problems()
	require.Regexp(t, `^misuse: host function: it called the driver, which is not permitted there, at host_func_test.go:\d+`, problems[len(problems)-1])
	b.ok(b.EventSynchronize(e))
}

// A call from outside the bubble cannot start a function there: the next one from
// inside does.
func TestHostFuncFromOutsideTheBubble(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		var calls atomic.Int32
		requests <- func() {
			b.hostFunc(s, func() {
				time.Sleep(time.Hour)
				calls.Add(1)
			})
			b.ok(b.MemsetD8Async(b.mem(0, 8), 1, 8, u))
		}
		<-answers
		require.Zero(t, calls.Load())
		require.Equal(t, time.Hour, took(func() { b.ok(b.StreamSynchronize(s)) }))
		require.EqualValues(t, 1, calls.Load())
		b.ok(b.StreamSynchronize(u))
	})
}
