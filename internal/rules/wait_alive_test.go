package rules_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestWaitAlive(t *testing.T) {
	testgpu.Rule(t, "32 for an event of this process it is Wait", 1, func(t *testing.T, b *testgpu.Backend) {
		s, u, e := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewSharedEvent(t, b.Device())
		h, err := e.IPCHandle()
		require.NoError(t, err)
		own, err := b.Device().OpenEvent(h, nil)
		require.NoError(t, err)
		for _, x := range []*cuda.Event{e, own, testgpu.NewEvent(t, nil)} {
			release := testgpu.Hold(t, s)
			require.NoError(t, x.Record(s))
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, x.WaitAlive(ended, u), "it does not wait")
			require.False(t, testgpu.Query(t, u))
			release()
			require.NoError(t, u.Synchronize())
		}
		require.NoError(t, testgpu.NewEvent(t, nil).WaitAlive(t.Context(), u), "never recorded")
		require.NoError(t, own.Close())
		require.ErrorIs(t, own.WaitAlive(t.Context(), u), cuda.ErrClosed)
		require.ErrorIs(t, (*cuda.Event)(nil).WaitAlive(t.Context(), u), cuda.ErrInvalid)
		require.ErrorIs(t, e.WaitAlive(t.Context(), nil), cuda.ErrInvalid)
		require.NoError(t, u.Close())
		require.ErrorIs(t, e.WaitAlive(t.Context(), u), cuda.ErrClosed)
	})

	synctest.Test(t, func(t *testing.T) {
		p := testgpu.NewPeers(t, cudatest.Config{})
		e, ours := p.Shared(t)
		s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
		require.NoError(t, ours.WaitAlive(t.Context(), u), "never recorded")
		began := time.Now()
		p.GPU.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, ours.WaitAlive(ctx, u), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, testgpu.Query(t, u), "the stream does not wait")

		closing := testgpu.Go(func() error { return ours.WaitAlive(t.Context(), u) })
		synctest.Wait()
		require.NoError(t, ours.Close())
		require.ErrorIs(t, testgpu.Receive(t, closing), cuda.ErrClosed)
		require.ErrorIs(t, ours.WaitAlive(t.Context(), u), cuda.ErrClosed)

		ours = p.Open(t, e)
		require.ErrorIs(t, ours.WaitAlive(t.Context(), nil), cuda.ErrInvalid)
		gone, err := p.Here.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		require.ErrorIs(t, ours.WaitAlive(t.Context(), gone), cuda.ErrClosed)
		require.NoError(t, ours.WaitAlive(t.Context(), u))
		testgpu.OnTime(t, began, time.Hour)
		require.True(t, testgpu.Query(t, ours))

		h, err := e.IPCHandle()
		require.NoError(t, err)
		byHandle, err := p.Here.Device().OpenEvent(h, nil)
		require.NoError(t, err)
		p.GPU.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		require.NoError(t, byHandle.WaitAlive(t.Context(), u))
		testgpu.OnTime(t, began, 2*time.Hour)
		require.NoError(t, byHandle.Close())
	})
}
