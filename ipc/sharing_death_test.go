package ipc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// mourners begin to wait for e, an imported event that is pending, in every way, in
// ways that wait for something of this process too, and by WaitAlive.
func mourners(t *testing.T, e *cuda.Event, local cuda.Waitable, s *cuda.Stream) (all []<-chan error) {
	return append(waits(t, e),
		started(func() error { return cuda.WaitAll(t.Context(), e, local) }),
		started(func() error { return cuda.WaitAll(t.Context(), local, e, e) }),
		started(func() error {
			i, err := cuda.WaitAny(t.Context(), local, e)
			if i != 1 {
				t.Errorf("WaitAny: %d, %v", i, err)
			}
			return err
		}),
		started(func() error { return e.WaitAlive(t.Context(), s) }),
		started(func() error { return e.WaitAlive(context.Background(), s) }),
	)
}

// bereft wants what an imported event says whose process died before it was done.
func bereft(t *testing.T, e *cuda.Event, s *cuda.Stream) {
	t.Helper()
	_, err := e.Query()
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: event query: the other process is gone: the process that exported the event died before the event was done")
	err = e.Record(s)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: event record: the other process is gone: the process that exported the event is gone, so that nobody could rely on the record")
	for _, wait := range []func() error{func() error { return e.Wait(s) }, func() error { return s.WaitEvent(e) }, func() error { return e.WaitAlive(t.Context(), s) }} {
		err = wait()
		require.ErrorIs(t, err, cuda.ErrPeerGone)
		require.ErrorContains(t, err, "cuda: stream wait event: ")
	}
	for name, wait := range ways {
		returns(t, func() { require.ErrorIs(t, wait(t.Context(), e), cuda.ErrPeerGone, name) })
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.SynchronizeContext(ended), cuda.ErrPeerGone, "it is known at once")
	_, err = e.ElapsedTime(e)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
}

// atPeace wants what an imported event says that was done, or never recorded, when its process died.
func atPeace(t *testing.T, e *cuda.Event, s *cuda.Stream) {
	t.Helper()
	require.True(t, query(t, e))
	for name, wait := range ways {
		returns(t, func() { require.NoError(t, wait(t.Context(), e), name) })
	}
	require.NoError(t, e.Wait(s))
	require.NoError(t, e.WaitAlive(t.Context(), s))
	err := e.Record(s)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.NotContains(t, err.Error(), "before the event was done")
	require.True(t, query(t, e), "it was not recorded")
}

func TestExporterOfEventsDies(t *testing.T) {
	for name, kill := range map[string]func(*cudatest.Process){"all at once": (*cudatest.Process).Kill, "by and by": (*cudatest.Process).BeginKill} {
		inBubble := func(name string, f func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event)) {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeers(t, cudatest.Config{})
					t.Cleanup(p.exporter.Kill) // before it is seen whether anything was left
					e, ours := p.shared(t)
					f(t, p, newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil), e, ours)
				})
			})
		}

		inBubble(name+" during the work", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			began := time.Now()
			buf := alloc[uint32](t, p.there.dev(), 16)
			words := importedBuffer[uint32](t, p.here, exported(t, buf))
			fillNow(t, buf, 7)
			p.gpu.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			local := newStream(t, p.here.dev(), nil)
			p.gpu.Run(local, 10*time.Hour)
			all := mourners(t, ours, local, u)
			synctest.Wait()
			require.Equal(t, 14, p.here.drv.WaitStats().Waiting)
			time.Sleep(10 * time.Minute)
			kill(p.exporter)
			for i, w := range all {
				err := told(t, w)
				require.ErrorIs(t, err, cuda.ErrPeerGone, i)
				require.ErrorContains(t, err, "cuda: ", i)
			}
			onTime(t, began, 10*time.Minute)
			bereft(t, ours, u)
			onTime(t, began, 10*time.Minute)
			holds(t, u, words, 7)
			fillNow(t, words, 8)
			holds(t, u, words, 8)
			p.exporter.Kill()
			bereft(t, ours, u)
			holds(t, u, words, 8)
			require.NoError(t, p.here.dev().Synchronize())
			onTime(t, began, 10*time.Hour)
			require.Equal(t, 1, p.ledger.watches())
			require.NoError(t, ours.Close())
			require.Zero(t, p.ledger.watches())
		})

		inBubble(name+" after the work", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.gpu.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			time.Sleep(time.Hour) // and nobody asks
			kill(p.exporter)
			began := time.Now()
			atPeace(t, ours, u)
			onTime(t, began, 0)
			p.exporter.Kill()
			atPeace(t, ours, u)
			require.NoError(t, u.Synchronize())
		})

		inBubble(name+" while a wait that it ends is told", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.gpu.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			all := append(waits(t, ours), started(func() error { return ours.WaitAlive(t.Context(), u) }))
			time.Sleep(time.Hour)
			kill(p.exporter)
			for i, w := range all {
				require.NoError(t, told(t, w), i)
			}
		})

		inBubble(name+" before the record", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.gpu.Run(s, time.Hour)
			kill(p.exporter)
			atPeace(t, ours, u)
		})
	}

	t.Run("and its work ends before it is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			t.Cleanup(p.exporter.Kill)
			e, ours := p.shared(t)
			s, u := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil)
			p.gpu.Run(s, 8*time.Millisecond)
			require.NoError(t, e.Record(s))
			before := newStream(t, p.here.dev(), nil)
			require.NoError(t, ours.Wait(before))
			p.exporter.BeginKill()
			bereft(t, ours, u)
			time.Sleep(8 * time.Millisecond)
			atPeace(t, ours, u)
			require.NoError(t, before.Synchronize())
		})
	})

	t.Run("and others do not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			t.Cleanup(p.exporter.Kill)
			_, ours := p.shared(t)
			other := opened(t, p.gpu.NewProcess().API())
			e := shareable(t, other.dev())
			its, s := imported(t, p.here, exported(t, e)), newStream(t, other.dev(), nil)
			require.Equal(t, 2, p.ledger.watches())
			began := time.Now()
			p.gpu.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			all := waits(t, its)
			time.Sleep(time.Minute)
			p.exporter.Kill()
			require.True(t, query(t, ours))
			for _, w := range all {
				require.NoError(t, <-w)
			}
			onTime(t, began, time.Hour)
		})
	})
}

// A stream that waits already is lost, and nothing else: see [ipc.ImportEvent].
func TestStreamThatWaitsForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		t.Cleanup(p.exporter.Kill)
		e, ours := p.shared(t)
		s, u := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil)
		lost, err := p.here.dev().NewStream(nil)
		require.NoError(t, err)
		p.gpu.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		require.NoError(t, ours.Wait(lost))
		p.exporter.Kill()
		time.Sleep(24 * time.Hour)
		require.False(t, query(t, lost))
		p.gpu.Run(u, time.Minute)
		require.NoError(t, u.Synchronize())
		require.NoError(t, lost.Close())
	})
}

// The same with waits on the clock that runs.
func TestWaitsEndSoonAfterADeath(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	t.Cleanup(p.exporter.Kill)
	e, ours := p.shared(t)
	s, u := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil)
	p.gpu.Hold(s)
	require.NoError(t, e.Record(s))
	local := newStream(t, p.here.dev(), nil)
	release := p.gpu.Hold(local)
	releasedAtEnd(t, release)
	all := mourners(t, ours, local, u)
	parked(t, p.here.drv, 14)
	began := time.Now()
	p.exporter.BeginKill()
	for _, w := range all {
		require.ErrorIs(t, told(t, w), cuda.ErrPeerGone)
	}
	t.Logf("told within %v", time.Since(began))
	release()
	nobodyWaits(t, p.here.drv)
}
