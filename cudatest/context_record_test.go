package cudatest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestContextRecordTakesAsLongAsTheWork(t *testing.T) {
	const nb = driver.StreamNonBlocking
	for name, c := range map[string]struct {
		work func(b *bed)
		want time.Duration
	}{
		"nothing":    {func(b *bed) {}, 0},
		"one stream": {func(b *bed) { b.gpu.Run(Handle(b.stream(0, nb)), 5*ms) }, 5 * ms},
		"three streams": {func(b *bed) {
			for _, d := range []time.Duration{2 * ms, 7 * ms, ms} {
				b.gpu.Run(Handle(b.stream(0, nb)), d)
			}
		}, 7 * ms},
		"the default stream": {func(b *bed) {
			b.gpu.Run(Handle(b.stream(0, nb)), 5*ms)
			b.gpu.Run(Handle(b.stream(0, driver.StreamDefault)), 6*ms)
			b.gpu.Run(b.gpu.Default(0), 3*ms)
		}, 9 * ms},
		"a hold": {func(b *bed) {
			b.gpu.Run(Handle(b.stream(0, nb)), 5*ms)
			time.AfterFunc(8*ms, b.gpu.Hold(Handle(b.stream(0, nb))))
		}, 8 * ms},
		"a destroyed stream": {func(b *bed) {
			s := b.stream(0, nb)
			b.gpu.Run(Handle(s), 5*ms)
			b.ok(b.StreamDestroy(s))
		}, 5 * ms},
		"a stream that waits for another device's": {func(b *bed) {
			s, far, e := b.stream(0, nb), b.stream(1, nb), b.event(1, driver.EventDisableTiming)
			b.gpu.Run(Handle(far), 5*ms)
			b.ok(b.EventRecord(e, far))
			b.gpu.Run(Handle(far), time.Hour)
			b.ok(b.StreamWaitEvent(s, e, 0))
			b.gpu.Run(Handle(s), ms)
		}, 6 * ms},
		"another device's streams": {func(b *bed) {
			b.gpu.Run(Handle(b.stream(0, nb)), 5*ms)
			b.gpu.Run(Handle(b.stream(1, nb)), time.Hour)
			b.gpu.Run(b.gpu.Default(1), time.Hour)
		}, 5 * ms},
	} {
		for _, flags := range []uint32{driver.EventDefault, driver.EventDisableTiming} {
			t.Run(fmt.Sprintf("%s, flags=%d", name, flags), func(t *testing.T) {
				bubble(t, func(b *bed) {
					e, s := b.event(0, flags), b.stream(0, nb)
					c.work(b)
					b.ok(b.CtxRecordEvent(b.ctx[0], e))
					b.gpu.Run(Handle(s), time.Minute) // later, so no business of e
					if c.want > 0 {
						require.Equal(t, driver.ErrorNotReady, b.EventQuery(e))
					} else {
						b.ok(b.EventQuery(e))
					}
					require.Equal(t, c.want, took(func() { b.ok(b.EventSynchronize(e)) }))
					require.Equal(t, time.Minute-c.want, took(func() { b.ok(b.StreamSynchronize(s)) }), "the later work began at once")
				})
			})
		}
	}
}

func TestContextRecordIsDoneWithTheContext(t *testing.T) {
	bubble(t, func(b *bed) {
		e := b.event(0, driver.EventDefault)
		for range 2 {
			b.gpu.Run(Handle(b.stream(0, driver.StreamNonBlocking)), 5*ms)
		}
		b.ok(b.CtxRecordEvent(b.ctx[0], e))
		b.on(0, func() { b.ok(b.CtxSynchronize()) })
		b.ok(b.EventQuery(e))
	})
}

func TestContextRecordTellsTheTime(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		start, idle, again, end := b.event(0, 0), b.event(0, 0), b.event(0, 0), b.event(0, 0)
		b.ok(b.EventRecord(start, s))
		b.ok(b.StreamSynchronize(s))
		b.ok(b.CtxRecordEvent(b.ctx[0], idle))
		b.ok(b.CtxRecordEvent(b.ctx[0], again))
		b.gpu.Run(Handle(s), 3*ms)
		b.gpu.Run(Handle(u), 2*ms)
		b.ok(b.CtxRecordEvent(b.ctx[0], end))
		_, r := b.EventElapsedTime(idle, end)
		require.Equal(t, driver.ErrorNotReady, r)
		b.ok(b.EventSynchronize(end))
		require.Equal(t, float32(3), b.elapsed(start, end))
		require.Equal(t, float32(3), b.elapsed(idle, end))
		require.Equal(t, float32(-3), b.elapsed(end, again))
		require.Equal(t, float32(0.0005), b.elapsed(idle, again), "a tick")
		require.Equal(t, float32(-0.0005), b.elapsed(again, idle))
	})
}

func TestContextRecordIsWaitedFor(t *testing.T) {
	bubble(t, func(b *bed) {
		s, far, e := b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking), b.event(0, driver.EventDisableTiming)
		b.gpu.Run(Handle(s), 5*ms)
		b.gpu.Run(b.gpu.Default(0), 7*ms)
		b.ok(b.CtxRecordEvent(b.ctx[0], e))
		for _, waiter := range []driver.Stream{s, far} {
			b.ok(b.StreamWaitEvent(waiter, e, 0))
			b.gpu.Run(Handle(waiter), ms)
		}
		b.ok(b.EventDestroy(e))
		require.Equal(t, 8*ms, took(func() { b.ok(b.StreamSynchronize(s)) }))
		b.ok(b.StreamQuery(far))
	})
}

func TestContextRecordMisuse(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	e, far, gone := b.event(0, 0), b.event(1, 0), b.event(0, 0)
	b.ok(b.EventDestroy(gone))
	other := newBedOn(t, b.gpu, b.gpu.NewProcess().API())
	for i, c := range []struct {
		ctx  driver.Context
		e    driver.Event
		want driver.Result
		says string
	}{
		{0, e, driver.ErrorInvalidContext, "no context has the handle 0x0, or it was released"},
		{12345, e, driver.ErrorInvalidContext, "no context has the handle 0x3039, or it was released"},
		{other.ctx[0], e, driver.ErrorInvalidContext, "no context has the handle"},
		{b.ctx[0], 12345, driver.ErrorInvalidHandle, "no event ever had the handle 0x3039"},
		{b.ctx[0], gone, driver.ErrorInvalidHandle, "was destroyed"},
		{b.ctx[0], far, driver.ErrorInvalidHandle, fmt.Sprintf("event %#x of device 1 for the context of device 0", far)},
	} {
		require.Equal(t, c.want, b.CtxRecordEvent(c.ctx, c.e), i)
		misuses := b.gpu.main.misuses.list()
		require.Len(t, misuses, i+1)
		require.Contains(t, misuses[i], "misuse: CtxRecordEvent: ")
		require.Contains(t, misuses[i], c.says)
	}
	b.ok(b.CtxRecordEvent(b.ctx[1], far))
	b.ok(b.DevicePrimaryCtxRelease(0))
	require.Equal(t, driver.ErrorInvalidContext, b.CtxRecordEvent(b.ctx[0], e), "released")
	b.DevicePrimaryCtxRetain(0)
	require.Equal(t, driver.ErrorContextIsDestroyed, b.CtxRecordEvent(b.ctx[0], e), "an event of the earlier context")
	require.Equal(t, driver.ErrorNotInitialized, New(Config{}).API().CtxRecordEvent(b.ctx[0], e))
}

func TestContextRecordAndFaults(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		e, far := b.event(0, 0), b.event(1, 0)
		b.gpu.Run(Handle(u), time.Hour)
		b.gpu.Run(Handle(s), 5*ms)
		b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
		b.ok(b.CtxRecordEvent(b.ctx[0], e)) // not reached yet
		require.Equal(t, 5*ms, took(func() { require.Equal(t, driver.ErrorLaunchFailed, b.EventSynchronize(e)) }))
		require.Equal(t, driver.ErrorLaunchFailed, b.CtxRecordEvent(b.ctx[0], e))
		b.ok(b.CtxRecordEvent(b.ctx[1], far))
		b.ok(b.EventQuery(far))
	})
}

func TestContextRecordAndCaptures(t *testing.T) {
	b := newBed(t, Config{Devices: 2})
	b.on(0, func() {
		near, far := newCapturingOn(b, driver.CaptureModeRelaxed, driver.StreamNonBlocking), b.event(1, 0)
		b.ok(b.CtxRecordEvent(b.ctx[1], far))
		require.Equal(t, driver.CaptureActive, near.status(near.origin), "no capture of this device's")

		// It is, once one of the device's streams has joined.
		s := b.stream(1, driver.StreamNonBlocking)
		b.ok(b.StreamWaitEvent(s, near.inside, 0))
		require.Equal(t, driver.ErrorStreamCaptureUnsupported, b.CtxRecordEvent(b.ctx[1], far))
		require.Equal(t, driver.CaptureInvalidated, near.status(near.origin))
		b.ok(b.EventQuery(far))
		_, r := b.StreamEndCapture(near.origin)
		require.Equal(t, driver.ErrorStreamCaptureInvalidated, r)

		require.Equal(t, driver.ErrorInvalidValue, b.EventQuery(near.inside))
		b.ok(b.CtxRecordEvent(b.ctx[0], near.inside))
		b.ok(b.EventSynchronize(near.inside))
	})
}

func TestContextRecordBetweenProcesses(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, e := a.stream(0, driver.StreamNonBlocking), a.event(0, shared)
		opened := send(a, b, e)
		b.gpu.Run(Handle(b.stream(0, driver.StreamNonBlocking)), time.Hour)
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.CtxRecordEvent(a.ctx[0], e))
		require.Equal(t, 5*ms, took(func() { b.ok(b.EventSynchronize(opened)) }), "the other process's context is another")

		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.CtxRecordEvent(a.ctx[0], e))
		p.Kill()
		b.ok(b.CtxRecordEvent(b.ctx[0], opened))
		time.Sleep(2 * time.Hour)
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(opened), "recording it frees no dead process's event")
		b.on(0, func() { b.ok(b.CtxSynchronize()) })
	})
}
