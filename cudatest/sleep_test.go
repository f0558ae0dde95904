package cudatest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

const nonBlocking = driver.StreamNonBlocking

// sleep sleeps for events without limit.
func (b *bed) sleep(events ...driver.Event) { b.Sleep(events, 0, nil) }

// recorded returns a stream with work that prepare enqueues, and an event that is
// recorded behind it.
func (b *bed) recorded(device int, prepare func(s driver.Stream)) (driver.Stream, driver.Event) {
	b.t.Helper()
	s, e := b.stream(device, nonBlocking), b.event(device, driver.EventDisableTiming)
	prepare(s)
	b.ok(b.EventRecord(e, s))
	return s, e
}

func (b *bed) running(device int, d time.Duration) (driver.Stream, driver.Event) {
	return b.recorded(device, func(s driver.Stream) { b.gpu.Run(Handle(s), d) })
}

func (b *bed) held(device int) (s driver.Stream, e driver.Event, release func()) {
	s, e = b.recorded(device, func(s driver.Stream) { release = b.gpu.Hold(Handle(s)) })
	return s, e, release
}

// What ends a sleep, and when, to the nanosecond.
func TestSleepEnds(t *testing.T) {
	never := func(b *bed) driver.Event {
		_, e, _ := b.held(0)
		return e
	}
	for name, c := range map[string]struct {
		prepare func(b *bed) []driver.Event
		want    time.Duration
		slack   time.Duration
	}{
		"at the finish of the earliest": {func(b *bed) []driver.Event {
			_, late := b.running(0, time.Hour)
			_, early := b.running(1, 7*ms)
			return []driver.Event{late, never(b), early}
		}, 7 * ms, 0},
		"after a long time": {func(b *bed) []driver.Event {
			_, e := b.running(0, 1000*time.Hour)
			return []driver.Event{e}
		}, 1000 * time.Hour, 0},
		"at once, never recorded": {func(b *bed) []driver.Event {
			return []driver.Event{never(b), b.event(0, 0)}
		}, 0, 0},
		"at once, done": {func(b *bed) []driver.Event {
			_, e := b.running(0, ms)
			time.Sleep(ms)
			return []driver.Event{never(b), e}
		}, 0, 0},
		"at once, not an event": {func(b *bed) []driver.Event {
			return []driver.Event{never(b), 12345}
		}, 0, 0},
		"at once, recorded in a capture": {func(b *bed) []driver.Event {
			_, e := b.recorded(0, func(s driver.Stream) { b.ok(b.StreamBeginCapture(s, driver.CaptureModeRelaxed)) })
			return []driver.Event{never(b), e}
		}, 0, 0},
		"by a release": {func(b *bed) []driver.Event {
			_, e, release := b.held(0)
			time.AfterFunc(5*ms, release)
			return []driver.Event{never(b), e}
		}, 5 * ms, 0},
		"by a release, and what comes then": {func(b *bed) []driver.Event {
			s, _, release := b.held(0)
			b.gpu.Run(Handle(s), 3*ms)
			e := b.event(0, driver.EventDisableTiming)
			b.ok(b.EventRecord(e, s))
			time.AfterFunc(5*ms, release)
			return []driver.Event{never(b), e}
		}, 8 * ms, 0},
		"recorded anew after less": {func(b *bed) []driver.Event {
			_, e := b.running(0, time.Hour)
			s := b.stream(0, nonBlocking)
			time.AfterFunc(5*ms, func() {
				b.gpu.Run(Handle(s), 2*ms)
				b.ok(b.EventRecord(e, s))
			})
			return []driver.Event{never(b), e}
		}, 7 * ms, 0},
		"recorded anew after nothing": {func(b *bed) []driver.Event {
			e, s := never(b), b.stream(0, nonBlocking)
			time.AfterFunc(5*ms, func() { b.ok(b.EventRecord(e, s)) })
			return []driver.Event{e}
		}, 5 * ms, 0},
		"recorded anew after more": {func(b *bed) []driver.Event {
			s, e := b.running(0, 10*ms)
			time.AfterFunc(5*ms, func() {
				b.gpu.Run(Handle(s), 10*ms)
				b.ok(b.EventRecord(e, s))
			})
			return []driver.Event{e}
		}, 20 * ms, 0},
		"recorded in a capture meanwhile": {func(b *bed) []driver.Event {
			e, s := never(b), b.stream(0, nonBlocking)
			b.ok(b.StreamBeginCapture(s, driver.CaptureModeRelaxed))
			time.AfterFunc(5*ms, func() { b.ok(b.EventRecord(e, s)) })
			return []driver.Event{e}
		}, 5 * ms, 0},
		"destroyed": {func(b *bed) []driver.Event {
			e := never(b)
			time.AfterFunc(5*ms, func() { b.ok(b.EventDestroy(e)) })
			return []driver.Event{e}
		}, 5 * ms, 0},
		"context released": {func(b *bed) []driver.Event {
			_, e, _ := b.held(1)
			time.AfterFunc(5*ms, func() { b.ok(b.DevicePrimaryCtxRelease(1)) })
			return []driver.Event{never(b), e}
		}, 5 * ms, 0},
		"fault foreseen": {func(b *bed) []driver.Event {
			e := never(b)
			b.recorded(0, func(s driver.Stream) {
				b.gpu.Run(Handle(s), 5*ms)
				b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
			})
			return []driver.Event{e}
		}, 5 * ms, 0},
		"fault": {func(b *bed) []driver.Event {
			e, s := never(b), b.stream(0, nonBlocking)
			time.AfterFunc(5*ms, func() {
				b.gpu.Run(Handle(s), ms)
				b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
			})
			return []driver.Event{e}
		}, 6 * ms, 0},
		"fault behind a word": {func(b *bed) []driver.Event {
			_, e := b.running(0, time.Hour)
			word := b.word()
			b.recorded(0, func(s driver.Stream) {
				b.awaits(s, word)
				b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
			})
			time.AfterFunc(5*ms, func() { atomic.StoreUint32(word, 1) })
			return []driver.Event{e}
		}, 5 * ms, pollEvery},
		"the other device's fault does not": {func(b *bed) []driver.Event {
			_, e := b.running(1, 10*ms)
			b.recorded(0, func(s driver.Stream) {
				b.gpu.Run(Handle(s), ms)
				b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
			})
			return []driver.Event{e}
		}, 10 * ms, 0},
		"killed": {func(b *bed) []driver.Event {
			_, e := b.running(0, time.Hour)
			time.AfterFunc(5*ms, b.gpu.main.Kill)
			return []driver.Event{e}
		}, 5 * ms, 0},
		"host function": {func(b *bed) []driver.Event {
			_, e := b.recorded(0, func(s driver.Stream) {
				b.gpu.Run(Handle(s), 5*ms)
				b.hostFunc(s, func() { time.Sleep(10 * ms) })
				b.gpu.Run(Handle(s), 3*ms)
			})
			return []driver.Event{never(b), e}
		}, 18 * ms, 0},
		"word that the CPU stores to": {func(b *bed) []driver.Event {
			word := b.word()
			_, e := b.recorded(0, func(s driver.Stream) {
				b.gpu.Run(Handle(s), 5*ms)
				b.awaits(s, word)
				b.gpu.Run(Handle(s), 5*ms)
			})
			time.AfterFunc(10*ms, func() { atomic.StoreUint32(word, 1) })
			return []driver.Event{never(b), e}
		}, 15 * ms, pollEvery},
		"word that a stream stores to": {func(b *bed) []driver.Event {
			word := b.word()
			_, e := b.recorded(0, func(s driver.Stream) {
				b.awaits(s, word)
				b.gpu.Run(Handle(s), 5*ms)
			})
			b.recorded(0, func(s driver.Stream) {
				b.gpu.Run(Handle(s), time.Hour)
				b.ok(b.StreamWriteValue32(s, driver.HostPtr(unsafe.Pointer(word)), 1, 0))
			})
			return []driver.Event{never(b), e}
		}, time.Hour + 5*ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				events := c.prepare(b)
				require.InDelta(t, c.want, took(func() { b.sleep(events...) }), float64(c.slack))
				ended := 0
				for _, e := range events {
					if b.EventQuery(e) != driver.ErrorNotReady {
						ended++
					}
				}
				require.Equal(t, 1, ended)
			})
		})
	}
}

// word returns a word in pinned memory that is 0.
func (b *bed) word() *uint32 {
	b.t.Helper()
	w := (*uint32)(at(b.pinned(4)))
	atomic.StoreUint32(w, 0)
	return w
}

// awaits makes s wait until word is 1.
func (b *bed) awaits(s driver.Stream, word *uint32) {
	b.t.Helper()
	b.ok(b.StreamWaitValue32(s, driver.HostPtr(unsafe.Pointer(word)), 1, driver.StreamWaitValueEQ))
}

func TestSleepIsWoken(t *testing.T) {
	bubble(t, func(b *bed) {
		_, e := b.running(0, time.Hour)
		wake := make(chan struct{}, 1)
		time.AfterFunc(5*ms, func() { wake <- struct{}{} })
		require.Equal(t, 5*ms, took(func() { b.Sleep([]driver.Event{e}, time.Minute, wake) }))
		wake <- struct{}{}
		require.Zero(t, took(func() { b.Sleep([]driver.Event{e}, 0, wake) }), "before it slept")
		require.Empty(t, wake)
		time.AfterFunc(5*ms, func() { close(wake) })
		require.Equal(t, 5*ms, took(func() { b.Sleep(nil, 0, wake) }), "without events")
	})
}

func TestSleepHasALimit(t *testing.T) {
	bubble(t, func(b *bed) {
		s, e := b.running(0, 10*ms)
		_, held, _ := b.held(0)
		require.Equal(t, 4*ms, took(func() { b.Sleep([]driver.Event{held, e}, 4*ms, nil) }))
		require.Equal(t, 6*ms, took(func() { b.Sleep([]driver.Event{held, e}, 1<<63-1, nil) }))
		require.Equal(t, ms, took(func() { b.Sleep([]driver.Event{held}, ms, nil) }))
		require.Equal(t, ms, took(func() { b.Sleep(nil, ms, nil) }))

		// What changes and does not end it does not prolong it.
		go func() {
			for range 10 {
				b.gpu.Run(Handle(s), time.Hour)
				b.ok(b.EventRecord(e, s))
				b.ok(b.EventRecord(held, s))
				time.Sleep(ms)
			}
		}()
		synctest.Wait()
		require.Equal(t, 8*ms, took(func() { b.Sleep([]driver.Event{held, e}, 8*ms, nil) }))
		time.Sleep(10 * ms)
	})
}

func TestSleepInRealTime(t *testing.T) {
	b := newBed(t, Config{Latency: -1})
	_, e := b.running(0, 5*ms)
	_, held, release := b.held(0)
	require.GreaterOrEqual(t, took(func() { b.sleep(held, e) }), 4*ms)
	b.ok(b.EventQuery(e))
	require.GreaterOrEqual(t, took(func() { b.Sleep([]driver.Event{held}, 5*ms, nil) }), 5*ms)
	time.AfterFunc(5*ms, release)
	b.sleep(held)
	b.ok(b.EventQuery(held))

	word := b.word()
	_, e = b.recorded(0, func(s driver.Stream) { b.awaits(s, word) })
	time.AfterFunc(5*ms, func() { atomic.StoreUint32(word, 1) })
	b.sleep(e)
	b.ok(b.EventQuery(e))
}

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
