package ipc_test

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

// waitsForImported begins to wait for e, an imported event that is pending, in every way, in
// ways that wait for something of this process too, and by WaitAlive.
func waitsForImported(t *testing.T, e *cuda.Event, local cuda.Waitable, s *cuda.Stream) (all []<-chan error) {
	return append(testgpu.Waits(t, e),
		testgpu.Go(func() error { return cuda.WaitAll(t.Context(), e, local) }),
		testgpu.Go(func() error { return cuda.WaitAll(t.Context(), local, e, e) }),
		testgpu.Go(func() error {
			i, err := cuda.WaitAny(t.Context(), local, e)
			if i != 1 {
				t.Errorf("WaitAny: %d, %v", i, err)
			}
			return err
		}),
		testgpu.Go(func() error { return e.WaitAlive(t.Context(), s) }),
		testgpu.Go(func() error { return e.WaitAlive(context.Background(), s) }),
	)
}

// requirePeerGone checks every call on an imported event whose process died before it was done.
func requirePeerGone(t *testing.T, e *cuda.Event, s *cuda.Stream) {
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
	for name, wait := range testgpu.WaitWays {
		testgpu.Returns(t, func() { require.ErrorIs(t, wait(t.Context(), e), cuda.ErrPeerGone, name) })
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.SynchronizeContext(ended), cuda.ErrPeerGone, "it is known at once")
	_, err = e.ElapsedTime(e)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
}

// requireDone checks every call on an imported event that was done, or never recorded, when its process died.
func requireDone(t *testing.T, e *cuda.Event, s *cuda.Stream) {
	t.Helper()
	require.True(t, testgpu.Query(t, e))
	for name, wait := range testgpu.WaitWays {
		testgpu.Returns(t, func() { require.NoError(t, wait(t.Context(), e), name) })
	}
	require.NoError(t, e.Wait(s))
	require.NoError(t, e.WaitAlive(t.Context(), s))
	err := e.Record(s)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.NotContains(t, err.Error(), "before the event was done")
	require.True(t, testgpu.Query(t, e), "it was not recorded")
}

func TestExporterOfEventsDies(t *testing.T) {
	for name, kill := range map[string]func(*cudatest.Process){"all at once": (*cudatest.Process).Kill, "by and by": (*cudatest.Process).BeginKill} {
		inBubble := func(name string, f func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event)) {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeers(t, cudatest.Config{})
					t.Cleanup(p.Exporter.Kill) // before it is seen whether anything was left
					e, ours := p.shared(t)
					f(t, p, testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil), e, ours)
				})
			})
		}

		inBubble(name+" during the work", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			began := time.Now()
			buf := testgpu.Alloc[uint32](t, p.There.Device(), 16)
			words := importedBuffer[uint32](t, p.Here, exported(t, buf))
			fillNow(t, buf, 7)
			p.GPU.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			local := testgpu.NewStream(t, p.Here.Device(), nil)
			p.GPU.Run(local, 10*time.Hour)
			all := waitsForImported(t, ours, local, u)
			synctest.Wait()
			require.Equal(t, 14, p.Here.Driver.WaitStats().Waiting)
			time.Sleep(10 * time.Minute)
			kill(p.Exporter)
			for i, w := range all {
				err := testgpu.Receive(t, w)
				require.ErrorIs(t, err, cuda.ErrPeerGone, i)
				require.ErrorContains(t, err, "cuda: ", i)
			}
			testgpu.OnTime(t, began, 10*time.Minute)
			requirePeerGone(t, ours, u)
			testgpu.OnTime(t, began, 10*time.Minute)
			testgpu.RequireFilled(t, u, words, 7)
			fillNow(t, words, 8)
			testgpu.RequireFilled(t, u, words, 8)
			p.Exporter.Kill()
			requirePeerGone(t, ours, u)
			testgpu.RequireFilled(t, u, words, 8)
			require.NoError(t, p.Here.Device().Synchronize())
			testgpu.OnTime(t, began, 10*time.Hour)
			require.Equal(t, 1, p.ledger.watches())
			require.NoError(t, ours.Close())
			require.Zero(t, p.ledger.watches())
		})

		inBubble(name+" after the work", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.GPU.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			time.Sleep(time.Hour) // and nobody asks
			kill(p.Exporter)
			began := time.Now()
			requireDone(t, ours, u)
			testgpu.OnTime(t, began, 0)
			p.Exporter.Kill()
			requireDone(t, ours, u)
			require.NoError(t, u.Synchronize())
		})

		inBubble(name+" while a wait that it ends is notified", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.GPU.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			all := append(testgpu.Waits(t, ours), testgpu.Go(func() error { return ours.WaitAlive(t.Context(), u) }))
			time.Sleep(time.Hour)
			kill(p.Exporter)
			for i, w := range all {
				require.NoError(t, testgpu.Receive(t, w), i)
			}
		})

		inBubble(name+" before the record", func(t *testing.T, p *peers, s, u *cuda.Stream, e, ours *cuda.Event) {
			p.GPU.Run(s, time.Hour)
			kill(p.Exporter)
			requireDone(t, ours, u)
		})
	}

	t.Run("and its work ends before it is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			t.Cleanup(p.Exporter.Kill)
			e, ours := p.shared(t)
			s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
			p.GPU.Run(s, 8*time.Millisecond)
			require.NoError(t, e.Record(s))
			before := testgpu.NewStream(t, p.Here.Device(), nil)
			require.NoError(t, ours.Wait(before))
			p.Exporter.BeginKill()
			requirePeerGone(t, ours, u)
			time.Sleep(8 * time.Millisecond)
			requireDone(t, ours, u)
			require.NoError(t, before.Synchronize())
		})
	})

	t.Run("and others do not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			t.Cleanup(p.Exporter.Kill)
			_, ours := p.shared(t)
			other := testgpu.Open(t, p.GPU.NewProcess().API())
			e := testgpu.NewSharedEvent(t, other.Device())
			its, s := imported(t, p.Here, exported(t, e)), testgpu.NewStream(t, other.Device(), nil)
			require.Equal(t, 2, p.ledger.watches())
			began := time.Now()
			p.GPU.Run(s, time.Hour)
			require.NoError(t, e.Record(s))
			all := testgpu.Waits(t, its)
			time.Sleep(time.Minute)
			p.Exporter.Kill()
			require.True(t, testgpu.Query(t, ours))
			for _, w := range all {
				require.NoError(t, <-w)
			}
			testgpu.OnTime(t, began, time.Hour)
		})
	})
}

// A stream that waits already is lost, and nothing else: see [ipc.ImportEvent].
func TestStreamThatWaitsForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		t.Cleanup(p.Exporter.Kill)
		e, ours := p.shared(t)
		s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
		lost, err := p.Here.Device().NewStream(nil)
		require.NoError(t, err)
		p.GPU.Run(s, time.Hour)
		require.NoError(t, e.Record(s))
		require.NoError(t, ours.Wait(lost))
		p.Exporter.Kill()
		time.Sleep(24 * time.Hour)
		require.False(t, testgpu.Query(t, lost))
		p.GPU.Run(u, time.Minute)
		require.NoError(t, u.Synchronize())
		require.NoError(t, lost.Close())
	})
}

// The same with waits on the clock that runs.
func TestWaitsEndSoonAfterADeath(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	t.Cleanup(p.Exporter.Kill)
	e, ours := p.shared(t)
	s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
	p.GPU.Hold(s)
	require.NoError(t, e.Record(s))
	local := testgpu.NewStream(t, p.Here.Device(), nil)
	release := p.GPU.Hold(local)
	testgpu.ReleaseAtEnd(t, release)
	all := waitsForImported(t, ours, local, u)
	testgpu.Parked(t, p.Here.Driver, 14)
	began := time.Now()
	p.Exporter.BeginKill()
	for _, w := range all {
		require.ErrorIs(t, testgpu.Receive(t, w), cuda.ErrPeerGone)
	}
	t.Logf("notified within %v", time.Since(began))
	release()
	testgpu.NoWaits(t, p.Here.Driver)
}
