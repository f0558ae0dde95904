package cuda_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

func TestWaitAlive(t *testing.T) {
	rule(t, "32 for an event of this process it is Wait", 1, func(t *testing.T, b *backend) {
		s, u, e := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), shareable(t, b.dev())
		h, err := e.IPCHandle()
		require.NoError(t, err)
		own, err := b.dev().OpenEvent(h, nil)
		require.NoError(t, err)
		for _, x := range []*cuda.Event{e, own, newEvent(t, nil)} {
			release := hold(t, s)
			require.NoError(t, x.Record(s))
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, x.WaitAlive(ended, u), "it does not wait")
			require.False(t, query(t, u))
			release()
			require.NoError(t, u.Synchronize())
		}
		require.NoError(t, newEvent(t, nil).WaitAlive(t.Context(), u), "never recorded")
		require.NoError(t, own.Close())
		require.ErrorIs(t, own.WaitAlive(t.Context(), u), cuda.ErrClosed)
		require.ErrorIs(t, (*cuda.Event)(nil).WaitAlive(t.Context(), u), cuda.ErrInvalid)
		require.ErrorIs(t, e.WaitAlive(t.Context(), nil), cuda.ErrInvalid)
		require.NoError(t, u.Close())
		require.ErrorIs(t, e.WaitAlive(t.Context(), u), cuda.ErrClosed)
	})

	synctest.Test(t, func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		e, ours := p.shared(t)
		s, u := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil)
		require.NoError(t, ours.WaitAlive(t.Context(), u), "never recorded")
		began := time.Now()
		p.gpu.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, ours.WaitAlive(ctx, u), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
		require.True(t, query(t, u), "the stream does not wait")

		closing := started(func() error { return ours.WaitAlive(t.Context(), u) })
		synctest.Wait()
		require.NoError(t, ours.Close())
		require.ErrorIs(t, told(t, closing), cuda.ErrClosed)
		require.ErrorIs(t, ours.WaitAlive(t.Context(), u), cuda.ErrClosed)

		ours = p.open(t, e)
		require.ErrorIs(t, ours.WaitAlive(t.Context(), nil), cuda.ErrInvalid)
		gone, err := p.here.dev().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		require.ErrorIs(t, ours.WaitAlive(t.Context(), gone), cuda.ErrClosed)
		require.NoError(t, ours.WaitAlive(t.Context(), u))
		onTime(t, began, time.Hour)
		require.True(t, query(t, ours))

		h, err := e.IPCHandle()
		require.NoError(t, err)
		byHandle, err := p.here.dev().OpenEvent(h, nil)
		require.NoError(t, err)
		p.gpu.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		require.NoError(t, byHandle.WaitAlive(t.Context(), u))
		onTime(t, began, 2*time.Hour)
		require.NoError(t, byHandle.Close())
	})
}
