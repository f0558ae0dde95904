package cudatest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// All sleepers notice, each its own and those that sleep for the same.
func TestManySleepers(t *testing.T) {
	bubble(t, func(b *bed) {
		_, never, _ := b.held(0)
		var wg sync.WaitGroup
		var woken atomic.Int64
		start := time.Now()
		for i := range 50 {
			_, e, release := b.held(i % 2)
			for range 20 {
				wg.Go(func() {
					b.sleep(never, e)
					woken.Add(1)
					require.Equal(t, time.Duration(i)*ms, time.Since(start))
				})
			}
			wg.Go(func() { b.ok(b.EventSynchronize(e)) })
			time.AfterFunc(time.Duration(i)*ms, release)
		}
		synctest.Wait()
		require.EqualValues(t, 20, woken.Load(), "the first stream's, released at once")
		require.Equal(t, 49*ms, took(wg.Wait))
	})
}

// Nothing but what may change an answer wakes a sleeper.
func TestSleepersAreLeftAlone(t *testing.T) {
	bubble(t, func(b *bed) {
		_, e, release := b.held(0)
		done := make(chan struct{})
		go func() {
			b.sleep(e)
			close(done)
		}()
		synctest.Wait()
		b.gpu.mu.Lock()
		changed := b.gpu.changed
		b.gpu.mu.Unlock()
		require.NotNil(t, changed)
		s, other := b.running(0, ms)
		u, _, releaseOther := b.held(0)
		b.ok(b.StreamWaitEvent(u, other, 0))
		b.hostFunc(u, func() {})
		releaseOther()
		b.ok(b.StreamSynchronize(u))
		b.ok(b.EventRecord(other, s))
		b.ok(b.EventDestroy(other))
		b.gpu.mu.Lock()
		require.Equal(t, changed, b.gpu.changed)
		b.gpu.mu.Unlock()
		release()
		<-done
	})
}

// An event of a dead process is never done; it may be recorded or destroyed.
func TestSleepForADeadProcess(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		e := a.event(0, shared)
		s := a.stream(0, nonBlocking)
		a.gpu.Run(Handle(s), time.Minute)
		a.ok(a.EventRecord(e, s))
		opened := send(a, b, e)
		_, own := b.running(0, time.Hour)
		// A fault that will never be reached: nothing may wait for its time.
		faulty := b.stream(1, nonBlocking)
		_, beside := b.running(1, time.Hour)
		b.ok(b.StreamWaitEvent(faulty, opened, 0))
		b.gpu.Fault(Handle(faulty), driver.ErrorLaunchFailed)
		time.AfterFunc(5*ms, p.Kill)
		mine, exact := make(chan time.Duration), make(chan time.Duration)
		go func() { mine <- took(func() { a.sleep(e) }) }()
		go func() { exact <- took(func() { b.ok(b.EventSynchronize(beside)) }) }()
		require.Equal(t, time.Hour, took(func() { b.sleep(opened, own, beside) }))
		require.Equal(t, 5*ms, <-mine)
		require.Equal(t, time.Hour, <-exact)
		require.Zero(t, took(func() { a.sleep(e) }))

		time.AfterFunc(ms, func() { b.ok(b.EventDestroy(opened)) })
		require.Equal(t, ms, took(func() { b.sleep(opened) }))
	})
}

// The other process records the event that both share.
func TestSleepForAnotherProcess(t *testing.T) {
	peers(t, func(a, b *bed, _ *Process) {
		e := a.event(0, shared)
		opened := send(a, b, e)
		s, u := a.stream(0, nonBlocking), b.stream(0, nonBlocking)
		a.gpu.Run(Handle(s), time.Hour)
		a.ok(a.EventRecord(e, s))
		time.AfterFunc(5*ms, func() { b.ok(b.EventRecord(opened, u)) })
		require.Equal(t, 5*ms, took(func() { a.sleep(e) }))
	})
}

// A sleep ends no capture, though a query on the same thread would.
func TestSleepLeavesCapturesAlone(t *testing.T) {
	bubble(t, func(b *bed) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, e := b.running(0, 5*ms)
		s := b.stream(0, nonBlocking)
		b.ok(b.StreamBeginCapture(s, driver.CaptureModeGlobal))
		require.Equal(t, 5*ms, took(func() { b.sleep(e) }))
		status, r := b.StreamIsCapturing(s)
		b.ok(r)
		require.Equal(t, driver.CaptureActive, status)
		require.Equal(t, driver.ErrorStreamCaptureUnsupported, b.EventQuery(e))
	})
}

func TestSleepNotesNoMisuse(t *testing.T) {
	b := newBed(t, Config{})
	b.sleep(12345)
	e := b.event(0, 0)
	b.ok(b.EventDestroy(e))
	b.sleep(e)
	require.Empty(t, b.gpu.Problems())
}

func TestSleepBeforeInit(t *testing.T) {
	New(Config{}).API().Sleep([]driver.Event{1}, 0, nil)
}

// A sleep that nobody will end is seen as the deadlock that it is.
func TestSleepDeadlock(t *testing.T) {
	defer func() {
		require.Contains(t, fmt.Sprint(recover()), "deadlock: all goroutines in bubble are blocked")
	}()
	bubble(t, func(b *bed) {
		_, e, _ := b.held(0)
		b.running(0, time.Hour)
		b.sleep(e)
	})
}

func TestSleepAndCleanupOutsideTheBubble(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	outside := func(f func()) {
		requests <- f
		<-answers
	}
	bubble(t, func(b *bed) {
		s, e := b.running(0, 5*ms)
		_, held, _ := b.held(0)
		_, far := b.running(1, time.Hour)
		word := b.word()
		_, stored := b.recorded(0, func(s driver.Stream) { b.awaits(s, word) })
		p := b.mem(0, 64)
		start := time.Now()
		ended := make(chan time.Duration, 4)
		for _, events := range [][]driver.Event{{held, e}, {far}} {
			go func() {
				b.sleep(events...)
				ended <- time.Since(start)
			}()
		}
		waited := make(chan driver.Result, 1)
		go func() { waited <- b.EventSynchronize(stored) }()
		synctest.Wait()
		outside(func() {
			b.Sleep([]driver.Event{held}, 0, nil) // ends after a while
			b.ok(b.EventDestroy(e))
			b.ok(b.StreamDestroy(s))
			b.on(0, func() { b.ok(b.MemFree(p)) })
			b.ok(b.DevicePrimaryCtxRelease(1))
			// Enqueuing looks at the word, which ends a wait.
			atomic.StoreUint32(word, 1)
			b.ok(b.MemsetD8Async(b.mem(0, 8), 1, 8, b.stream(0, nonBlocking)))
		})
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(held), "a call from inside ends them")
		require.Zero(t, <-ended)
		require.Zero(t, <-ended)
		b.ok(<-waited)
	})
}
