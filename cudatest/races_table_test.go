package cudatest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func (b *bed) fill(s driver.Stream, p driver.DevicePtr) {
	b.t.Helper()
	b.on(0, func() { b.ok(b.MemsetD32Async(p, 1, 4, s)) })
}

// races returns how many races there are when all is done.
func (b *bed) races() (n int) {
	b.t.Helper()
	for d := range b.ctx {
		b.on(d, func() { b.ok(b.CtxSynchronize()) })
	}
	for _, p := range b.gpu.Problems() {
		if strings.HasPrefix(p, "race: ") {
			n++
		}
	}
	return n
}

// Calls that package cuda does not make, or makes in another way.
func TestRacesOfTheTable(t *testing.T) {
	const apart = driver.StreamNonBlocking
	for name, c := range map[string]struct {
		races bool
		run   func(b *bed, x driver.DevicePtr)
	}{
		"copies to pageable memory are waited for, if they take time": {false, func(b *bed, x driver.DevicePtr) {
			s := b.stream(0, apart)
			b.fill(s, x)
			b.ok(b.MemcpyDtoHAsync(at(make([]byte, 16)), x, 16, s))
			b.fill(b.stream(0, apart), x)
		}},
		"and if they take none": {false, func(b *bed, x driver.DevicePtr) {
			b.gpu.conf.Latency = 0
			s := b.stream(0, apart)
			b.fill(s, x)
			b.ok(b.MemcpyDtoHAsync(at(make([]byte, 16)), x, 16, s))
			b.fill(b.stream(0, apart), x)
		}},
		"an idle stream is done, whatever the default stream does": {true, func(b *bed, x driver.DevicePtr) {
			s := b.stream(0, 0)
			b.on(0, func() { b.fill(0, x) })
			b.ok(b.StreamSynchronize(s))
			b.ok(b.StreamQuery(s))
			b.fill(b.stream(0, apart), x)
		}},
		"a destroyed stream orders no others": {true, func(b *bed, x driver.DevicePtr) {
			s, other := b.stream(0, 0), b.stream(0, 0)
			b.fill(s, x)
			b.ok(b.StreamDestroy(s))
			b.fill(other, x)
		}},
		"an event of a context orders no others": {true, func(b *bed, x driver.DevicePtr) {
			s, other := b.stream(0, 0), b.stream(0, 0)
			b.fill(s, x)
			b.ok(b.CtxRecordEvent(b.ctx[0], b.event(0, driver.EventDisableTiming)))
			b.fill(other, x)
		}},
		"nor does a wait for the default stream": {true, func(b *bed, x driver.DevicePtr) {
			s, other := b.stream(0, 0), b.stream(0, 0)
			release := b.gpu.Hold(Handle(s))
			b.fill(s, x)
			b.on(0, func() { require.Equal(b.t, driver.ErrorNotReady, b.StreamQuery(0)) })
			b.fill(other, x)
			release()
		}},
		"the default stream waits for an event that is not done": {false, func(b *bed, x driver.DevicePtr) {
			defaultWaits(b, x, false)
		}},
		"and for one that is": {false, func(b *bed, x driver.DevicePtr) {
			defaultWaits(b, x, true)
		}},
		"a wait comes after the default stream's work": {false, func(b *bed, x driver.DevicePtr) {
			s, e := b.stream(0, 0), b.event(0, driver.EventDisableTiming)
			b.ok(b.EventRecord(e, b.stream(0, apart)))
			b.gpu.Run(b.gpu.Default(0), time.Millisecond)
			b.fill(0, x)
			b.ok(b.StreamWaitEvent(s, e, 0))
			b.ok(b.StreamSynchronize(s))
			b.fill(b.stream(0, apart), x)
		}},
		"and a record does": {false, func(b *bed, x driver.DevicePtr) {
			s := b.stream(0, 0)
			b.gpu.Run(b.gpu.Default(0), time.Millisecond)
			b.fill(0, x)
			b.ok(b.EventRecord(b.event(0, driver.EventDisableTiming), s))
			b.ok(b.StreamSynchronize(s))
			b.fill(b.stream(0, apart), x)
		}},
		"words in memory of very many parts": {false, func(b *bed, x driver.DevicePtr) {
			const n = 40_000
			s, other, words := b.stream(0, apart), b.stream(0, apart), b.mem(0, 4*n)
			b.on(0, func() {
				b.ok(b.MemsetD32Async(words, 0, n, s))
				b.ok(b.CtxSynchronize())
			})
			release := b.gpu.Hold(Handle(other))
			b.fill(s, x)
			for i := range driver.DevicePtr(n) {
				b.ok(b.StreamWriteValue32(s, words+4*i, 1, 0))
			}
			b.ok(b.StreamWaitValue32(other, words, 1, driver.StreamWaitValueEQ))
			b.fill(other, x)
			release()
		}},
		"memory that is freed": {true, func(b *bed, x driver.DevicePtr) {
			s, other := b.stream(0, apart), b.stream(0, apart)
			y := b.mem(0, 16)
			b.fill(s, y)
			b.ok(b.MemFreeAsync(y, other))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{})
			c.run(b, b.mem(0, 16))
			require.Equal(t, c.races, b.races() > 0, "%v", b.gpu.Problems())
		})
	}
}

// defaultWaits has the default stream wait for an event, which puts it between two streams.
func defaultWaits(b *bed, x driver.DevicePtr, done bool) {
	s, other, third := b.stream(0, 0), b.stream(0, 0), b.stream(0, driver.StreamNonBlocking)
	e := b.event(0, driver.EventDisableTiming)
	release := b.gpu.Hold(Handle(third))
	if done {
		release()
	}
	b.ok(b.EventRecord(e, third))
	b.fill(s, x)
	b.gpu.Run(Handle(s), time.Millisecond)
	b.on(0, func() { b.ok(b.StreamWaitEvent(0, e, 0)) })
	b.fill(other, x)
	release()
}

// Streams that come and go leave nothing, whatever they did last.
func TestOrderOfManyStreams(t *testing.T) {
	b := newBed(t, Config{})
	s, x, e := b.stream(0, driver.StreamNonBlocking), b.mem(0, 16), b.event(0, driver.EventDisableTiming)
	for range 2000 {
		short := b.stream(0, driver.StreamNonBlocking)
		for _, turn := range [][2]driver.Stream{{s, short}, {short, s}, {s, short}} {
			b.fill(turn[0], x)
			b.ok(b.EventRecord(e, turn[0]))
			b.ok(b.StreamWaitEvent(turn[1], e, 0))
		}
		b.ok(b.StreamSynchronize(s))
		b.ok(b.StreamDestroy(short))
	}
	require.Zero(t, b.races())
	require.Less(t, b.gpu.order.Sequences(), 20)
}
