package ipc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestWithdraw(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	defer x.Close()
	require.NoError(t, a.Offer("x", x))
	y := b.attach(t, "x")
	wanted := b.Withdrawn("x")
	testgpu.NotReady(t, wanted)

	require.ErrorIs(t, a.Withdraw(within(t, testgpu.Soon), "x"), context.DeadlineExceeded)
	testgpu.Receive(t, wanted)
	require.True(t, isClosed(b.Withdrawn("x")), "nothing of the name is offered now")
	_, err := b.Event(within(t, testgpu.Soon), b.drv, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = a.Offer("x", x)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "has not released it yet")

	ctx := newAwaited(context.Background())
	again := testgpu.Go(func() error { return a.Withdraw(ctx, "x") })
	testgpu.Receive(t, ctx.waits) // before, it would find nothing that is offered
	testgpu.NotReady(t, again)
	require.NoError(t, y.Close())
	require.NoError(t, testgpu.Receive(t, again))
	require.Equal(t, 1, a.live(), "x itself")

	// The name is free again.
	require.NoError(t, a.Offer("x", x))
	require.Equal(t, []float32{1}, b.read(t, b.attach(t, "x")))
	testgpu.NotReady(t, b.Withdrawn("x"))
}

func TestWithdrawWhatNobodyAttached(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, x.Close())
	require.NotZero(t, a.live(), "the session keeps it")
	require.NoError(t, a.Withdraw(t.Context(), "x"))
	require.Zero(t, a.live())
	require.NoError(t, b.Err())
}

// What is closed is released when nothing uses it any more: here, a graph does.
func TestWithdrawWaitsForGraphs(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, x.Close())
	y := b.attach(t, "x")
	g, err := b.stream.Capture(func() error { return cuda.Fill(b.stream, y, 2) })
	require.NoError(t, err)
	require.NoError(t, y.Close())
	withdrawn := testgpu.Go(func() error { return a.Withdraw(context.Background(), "x") })
	testgpu.NotReady(t, withdrawn)
	require.NoError(t, b.Session.Close())
	testgpu.NotReady(t, withdrawn)
	require.NoError(t, g.Close())
	require.NoError(t, testgpu.Receive(t, withdrawn))
}

// When the exporter leaves, all that it offered is wanted back, and given back piece
// by piece, also if the importer's session stays open.
func TestLeaveWithdrawsAll(t *testing.T) {
	before := len(goroutines())
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, a.Offer("unused", x))
	require.NoError(t, x.Close())
	other := a.memory(t, 2)
	require.NoError(t, a.Offer("other", other))
	require.NoError(t, other.Close())
	y, z := b.attach(t, "x"), b.attach(t, "other")
	wanted, unused := b.Withdrawn("x"), b.Withdrawn("unused")
	require.NoError(t, a.Session.Close())
	testgpu.Receive(t, wanted)
	testgpu.Receive(t, unused)
	testgpu.Receive(t, b.Done())
	require.ErrorIs(t, b.Err(), ErrLeft)
	require.ErrorIs(t, a.Err(), cuda.ErrClosed)
	require.ErrorIs(t, a.Shutdown(within(t, testgpu.Soon)), context.DeadlineExceeded)
	require.Equal(t, []float32{1}, b.read(t, y))
	require.NoError(t, a.Withdraw(t.Context(), "unused"))
	require.NoError(t, y.Close())
	require.NoError(t, a.Withdraw(t.Context(), "x"))
	require.Equal(t, []float32{2}, b.read(t, z))
	require.ErrorIs(t, a.Shutdown(within(t, testgpu.Soon)), context.DeadlineExceeded)
	require.NoError(t, z.Close())
	require.NoError(t, a.Shutdown(t.Context()))
	require.Zero(t, a.live())

	// The importer's end is over without its Close, too.
	testgpu.WaitUntil(t, func() bool { return len(goroutines()) <= before })
}

// After the end nothing is offered or attached, and the error says why.
func TestAfterTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end func(a, b *end)
		is  error
	}{
		"closed here": {func(a, _ *end) { _ = a.Session.Close() }, cuda.ErrClosed},
		"peer left":   {func(_, b *end) { _ = b.Session.Close() }, ErrLeft},
		"peer died":   {func(a, _ *end) { a.peers.die() }, cuda.ErrPeerGone},
		"lost":        {func(_, b *end) { b.abandon() }, cuda.ErrPeerGone},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			x, y := a.memory(t, 1), b.memory(t, 2)
			require.NoError(t, b.Offer("y", y))
			a.attach(t, "y")
			waits := testgpu.Go(func() error { _, err := a.Event(context.Background(), a.drv, "never"); return err })
			testgpu.NotReady(t, waits)

			test.end(a, b)
			testgpu.Receive(t, a.Done())
			require.ErrorIs(t, a.Err(), test.is)
			require.ErrorIs(t, testgpu.Receive(t, waits), test.is, "a wait for an offer")
			require.ErrorIs(t, a.Offer("x", x), test.is)
			_, err := Buffer[float32](t.Context(), a.Session, a.drv, "y")
			require.ErrorIs(t, err, test.is)
			require.ErrorIs(t, a.sendTo("channel", nil, nil), test.is)
			require.NoError(t, a.Session.Close())
			require.NoError(t, a.Session.Close(), "closing again")
			require.ErrorIs(t, a.Err(), test.is, "the first reason stays")

			require.Equal(t, 1, a.live(), "x")
			require.NoError(t, x.Close())
			require.NoError(t, y.Close())
			require.NoError(t, b.Session.Close())
			b.peers.gone()
			a.peers.gone()
			testgpu.WaitUntil(t, func() bool { return b.live() == 0 })
		})
	}
}

// Two names for one memory: what was attached by the one is released when that is closed,
// though the other is still open.
func TestWithdrawOneOfTwoNames(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("one", x))
	require.NoError(t, a.Offer("two", x))
	require.NoError(t, x.Close())
	one, two := b.attach(t, "one"), b.attach(t, "two")
	require.NoError(t, one.Close())
	require.NoError(t, a.Withdraw(within(t, 5*time.Second), "one"))
	require.NotZero(t, a.live(), "of the other name")
	require.Equal(t, []float32{1}, b.read(t, two))
	require.NoError(t, two.Close())
	require.NoError(t, a.Withdraw(within(t, 5*time.Second), "two"))
	require.Zero(t, a.live())
}
