package cudatest

import (
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
