package cudatest

import (
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

const ms = time.Millisecond

// bubble runs f on a machine with two devices in virtual time.
func bubble(t *testing.T, f func(b *bed)) {
	synctestBed(t, Config{Devices: 2, Latency: -1}, f)
}

// took returns how much time f takes.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func TestRunTakesItsTime(t *testing.T) {
	bubble(t, func(b *bed) {
		s, e := b.stream(0, driver.StreamNonBlocking), b.event(0, driver.EventDisableTiming)
		b.gpu.Run(Handle(s), 10*ms)
		b.gpu.Run(Handle(s), time.Hour)
		b.ok(b.EventRecord(e, s))
		time.Sleep(time.Hour + 10*ms - 1)
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(s))
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(e))
		time.Sleep(time.Nanosecond)
		require.Equal(t, driver.Success, b.StreamQuery(s))
		require.Equal(t, driver.Success, b.EventQuery(e))
	})
}

func TestWaitingEndsWhenTheWorkDoes(t *testing.T) {
	for name, wait := range map[string]func(*bed, driver.Stream, driver.Event) driver.Result{
		"StreamSynchronize": func(b *bed, s driver.Stream, _ driver.Event) driver.Result { return b.StreamSynchronize(s) },
		"EventSynchronize":  func(b *bed, _ driver.Stream, e driver.Event) driver.Result { return b.EventSynchronize(e) },
		"CtxSynchronize": func(b *bed, _ driver.Stream, _ driver.Event) (r driver.Result) {
			b.on(0, func() { r = b.CtxSynchronize() })
			return r
		},
		"MemFree": func(b *bed, _ driver.Stream, _ driver.Event) (r driver.Result) {
			p := b.mem(0, 1)
			b.on(0, func() { r = b.MemFree(p) })
			return r
		},
	} {
		for _, work := range []string{"run", "hold", "word"} {
			t.Run(name+" for a "+work, func(t *testing.T) {
				bubble(t, func(b *bed) {
					s, e := b.stream(0, driver.StreamNonBlocking), b.event(0, driver.EventDisableTiming)
					word := (*uint32)(at(b.pinned(4)))
					atomic.StoreUint32(word, 0)
					slack := time.Duration(0)
					switch work {
					case "run":
						b.gpu.Run(Handle(s), 7*ms)
					case "hold":
						time.AfterFunc(7*ms, b.gpu.Hold(Handle(s)))
					case "word": // a store is only seen at the next look
						b.ok(b.StreamWaitValue32(s, driver.HostPtr(unsafe.Pointer(word)), 1, driver.StreamWaitValueEQ))
						time.AfterFunc(7*ms, func() { atomic.StoreUint32(word, 1) })
						slack = pollEvery
					}
					b.gpu.Run(Handle(s), 3*ms)
					b.ok(b.EventRecord(e, s))
					require.InDelta(t, 10*ms, took(func() { b.ok(wait(b, s, e)) }), float64(slack))
				})
			})
		}
	}
}

func TestWaits(t *testing.T) {
	const nb, def = driver.StreamNonBlocking, driver.StreamDefault
	for name, c := range map[string]struct {
		enqueue func(b *bed, s, u driver.Stream, e driver.Event)
		want    time.Duration // until u is done
		flags   uint32
	}{
		"unordered":      {func(b *bed, s, u driver.Stream, e driver.Event) {}, 1 * ms, nb},
		"never recorded": {func(b *bed, s, u driver.Stream, e driver.Event) { b.ok(b.StreamWaitEvent(u, e, 0)) }, 1 * ms, nb},
		"an event": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.ok(b.EventRecord(e, s))
			b.ok(b.StreamWaitEvent(u, e, 0))
		}, 11 * ms, nb},
		"behind own work": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.gpu.Run(Handle(u), 20*ms)
			b.ok(b.EventRecord(e, s))
			b.ok(b.StreamWaitEvent(u, e, 0))
		}, 21 * ms, nb},
		"destroyed at once": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.ok(b.EventRecord(e, s))
			b.ok(b.StreamWaitEvent(u, e, 0))
			b.ok(b.EventDestroy(e))
			b.ok(b.StreamDestroy(s))
		}, 11 * ms, nb},
		"the earlier record": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.ok(b.EventRecord(e, s))
			b.ok(b.StreamWaitEvent(u, e, 0))
			b.gpu.Run(Handle(s), 50*ms)
			b.ok(b.EventRecord(e, s))
		}, 11 * ms, nb},
		"itself": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.ok(b.EventRecord(e, u))
			b.ok(b.StreamWaitEvent(u, e, 0))
		}, 1 * ms, nb},
		"the default stream":               {func(b *bed, s, u driver.Stream, e driver.Event) { b.gpu.Run(b.gpu.Default(0), 5*ms) }, 16 * ms, def},
		"the default stream, non-blocking": {func(b *bed, s, u driver.Stream, e driver.Event) { b.gpu.Run(b.gpu.Default(0), 5*ms) }, 1 * ms, nb},
		"another device's default stream":  {func(b *bed, s, u driver.Stream, e driver.Event) { b.gpu.Run(b.gpu.Default(1), 5*ms) }, 1 * ms, def},
		"a destroyed stream's work, by way of the default stream": {func(b *bed, s, u driver.Stream, e driver.Event) {
			b.ok(b.StreamDestroy(s))
			b.gpu.Run(b.gpu.Default(0), 5*ms)
		}, 16 * ms, def},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				s, u, e := b.stream(0, c.flags), b.stream(0, c.flags), b.event(0, driver.EventDisableTiming)
				b.gpu.Run(Handle(s), 10*ms)
				c.enqueue(b, s, u, e)
				b.gpu.Run(Handle(u), 1*ms)
				require.Equal(t, c.want, took(func() { b.ok(b.StreamSynchronize(u)) }))
			})
		})
	}
}

func TestElapsedTime(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		start, middle, end, other := b.event(0, 0), b.event(0, 0), b.event(0, 0), b.event(1, 0)
		_, r := b.EventElapsedTime(start, end)
		require.Equal(t, driver.ErrorInvalidHandle, r, "never recorded")
		b.ok(b.EventRecord(start, s))
		b.ok(b.EventRecord(middle, s))
		b.gpu.Run(Handle(s), 3*ms)
		b.ok(b.EventRecord(end, s))
		_, r = b.EventElapsedTime(start, end)
		require.Equal(t, driver.ErrorNotReady, r)
		b.ok(b.EventSynchronize(end))
		require.Equal(t, float32(0.0005), b.elapsed(start, middle), "a tick")
		require.Equal(t, float32(3), b.elapsed(middle, end))
		require.Equal(t, float32(-3), b.elapsed(end, middle))
		require.Zero(t, b.elapsed(end, end))

		b.ok(b.EventRecord(other, b.stream(1, driver.StreamNonBlocking)))
		_, r = b.EventElapsedTime(start, other)
		require.Equal(t, driver.ErrorInvalidHandle, r, "two devices")

		b.ok(b.EventRecord(start, s))
		b.ok(b.StreamWaitEvent(u, start, 0))
		b.ok(b.EventRecord(end, u))
		b.ok(b.EventSynchronize(end))
		require.Equal(t, float32(0.0005), b.elapsed(start, end), "in order by a wait")
	})
}

// A word that the CPU watches changes though nobody calls the driver.
func TestHostSeesWrites(t *testing.T) {
	bubble(t, func(b *bed) {
		s := b.stream(0, driver.StreamNonBlocking)
		words := unsafe.Slice((*uint32)(at(b.pinned(8))), 2)
		words[0], words[1] = 0, 0
		b.gpu.Run(Handle(s), 5*ms)
		b.ok(b.StreamWaitValue32(s, driver.HostPtr(unsafe.Pointer(&words[0])), 1, driver.StreamWaitValueGEQ))
		b.gpu.Run(Handle(s), 5*ms)
		b.ok(b.StreamWriteValue32(s, driver.HostPtr(unsafe.Pointer(&words[1])), 1, 0))
		time.AfterFunc(10*ms, func() { atomic.StoreUint32(&words[0], 1) })
		require.InDelta(t, 15*ms, took(func() {
			for atomic.LoadUint32(&words[1]) == 0 {
				time.Sleep(time.Microsecond)
			}
		}), float64(2*pollEvery))
	})
}

func TestManyWaiters(t *testing.T) {
	bubble(t, func(b *bed) {
		var wg sync.WaitGroup
		var woken atomic.Int64
		for i := range 100 {
			s, e := b.stream(i%2, driver.StreamNonBlocking), b.event(i%2, driver.EventDisableTiming)
			release := b.gpu.Hold(Handle(s))
			b.ok(b.EventRecord(e, s))
			for range 100 {
				wg.Go(func() {
					b.EventSynchronize(e)
					woken.Add(1)
				})
			}
			time.AfterFunc(time.Duration(i)*ms, release)
		}
		synctest.Wait()
		require.EqualValues(t, 100, woken.Load(), "the first stream's, released at once")
		require.Equal(t, 99*ms, took(wg.Wait))
	})
}

// What is done is forgotten.
func TestMemoryDoesNotGrow(t *testing.T) {
	b := newBed(t, Config{})
	s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
	e, f := b.event(0, 0), b.event(0, driver.EventDisableTiming)
	step := func() {
		for range 10_000 {
			b.EventRecord(f, s)
			b.EventRecord(e, s)
			b.StreamWaitEvent(u, e, 0)
			b.EventRecord(f, u)
		}
		b.ok(b.StreamSynchronize(u))
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	step()
	before := heap()
	for range 20 {
		step()
	}
	require.Less(t, heap(), before+1<<20)
	require.Zero(t, len(b.gpu.pending))
}

func synctestBed(t *testing.T, c Config, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) { f(newBed(t, c)) })
}

func TestWordIsSetBeforeItIsLookedAt(t *testing.T) {
	bubble(t, func(b *bed) {
		s, word := b.stream(0, driver.StreamNonBlocking), driver.HostPtr(at(b.pinned(4)))
		b.gpu.Run(Handle(s), 5*ms)
		b.ok(b.StreamWaitValue32(s, word, Poison, driver.StreamWaitValueAND))
		b.gpu.Run(Handle(s), 5*ms)
		require.Equal(t, 10*ms, took(func() { b.ok(b.StreamSynchronize(s)) }))
	})
}

// Work that takes no time still happens in its order.
func TestTiesKeepOrder(t *testing.T) {
	bubble(t, func(b *bed) {
		s, p, h := b.stream(0, driver.StreamNonBlocking), b.mem(0, 100), b.pinned(1)
		release := b.gpu.Hold(Handle(s))
		b.ok(b.MemsetD8Async(p, 1, 1, s))
		for i := range driver.DevicePtr(99) {
			b.ok(b.MemcpyDtoDAsync(p+i+1, p+i, 1, s))
		}
		b.ok(b.MemcpyDtoHAsync(at(h), p+99, 1, s))
		release()
		require.Zero(t, took(func() { b.ok(b.StreamSynchronize(s)) }))
		require.EqualValues(t, 1, h[0])
	})
}
