package cudatest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// Destroying, freeing and releasing may happen in a cleanup, which runs outside
// the bubble.
func TestCleanupOutsideTheBubble(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	bubble(t, func(b *bed) {
		s, u, e := b.stream(0, driver.StreamDefault), b.stream(0, driver.StreamNonBlocking), b.event(0, 0)
		p, h := b.mem(0, 64), b.pinned(64)
		b.gpu.Run(Handle(s), 5*ms)
		b.ok(b.MemcpyDtoHAsync(at(h), p, 64, s))
		b.ok(b.EventRecord(e, s))
		b.ok(b.StreamWaitEvent(u, e, 0))
		done := make(chan driver.Result, 1)
		go func() { done <- b.EventSynchronize(e) }()
		synctest.Wait()
		requests <- func() {
			b.ok(b.EventDestroy(e))
			b.ok(b.StreamDestroy(s))
			b.on(0, func() {
				b.ok(b.MemFree(p))
				b.ok(b.MemFreeHost(at(h)))
			})
			b.ok(b.DevicePrimaryCtxRelease(1))
		}
		<-answers
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(u))
		b.ok(<-done)
		b.ok(b.StreamQuery(u))
		require.EqualValues(t, Poison, h[63], "the copy went on")
		b.ok(b.StreamDestroy(u))
		require.Empty(t, b.gpu.Problems())
	})
}

func TestBubbleMustMakeItsOwn(t *testing.T) {
	b := newBed(t, Config{})
	synctest.Test(t, func(t *testing.T) {
		require.PanicsWithValue(t, "cudatest: this GPU was made outside the synctest bubble that uses it: call New inside the bubble",
			func() { b.gpu.Run(b.gpu.Default(0), ms) })
	})
}
