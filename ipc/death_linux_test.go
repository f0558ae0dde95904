package ipc

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/proc"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The importer dies. What it had is kept until nothing of it is left: when the
// connection breaks, and even when it is dying, its work may still run.
func TestImporterDies(t *testing.T) {
	for name, lose := range map[string]func(a, b *end){
		"noticed by the process":    func(a, b *end) { a.peers.die() },
		"noticed by the connection": func(a, b *end) { b.abandon() },
		"noticed by both":           func(a, b *end) { a.peers.die(); b.abandon() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			x := a.memory(t, 1)
			require.NoError(t, a.Offer("x", x))
			require.NoError(t, x.Close())
			b.attach(t, "x")
			withdrawn := testgpu.Go(func() error { return a.Withdraw(context.Background(), "x") })
			shut := make(chan error, 1)
			go func() { <-a.Done(); shut <- a.Shutdown(context.Background()) }()
			testgpu.NotReady(t, withdrawn)

			begin := time.Now()
			lose(a, b)
			testgpu.Receive(t, a.Done())
			require.Less(t, time.Since(begin), time.Second)
			require.ErrorIs(t, a.Err(), cuda.ErrPeerGone)
			testgpu.NotReady(t, withdrawn)
			testgpu.NotReady(t, shut)
			require.NotZero(t, a.live())

			b.abandon()
			b.sim.Kill()
			a.peers.die()
			testgpu.NotReady(t, withdrawn)
			a.peers.gone()
			require.NoError(t, testgpu.Receive(t, withdrawn))
			require.NoError(t, testgpu.Receive(t, shut))
			require.Zero(t, a.live())
			require.NoError(t, a.Withdraw(t.Context(), "x"), "it is no longer held by anybody")
			b.peers.gone()
		})
	}
}

// The exporter dies. What was attached stays usable until it is closed, and nothing
// else is done about it.
func TestExporterDies(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1, 2)
	require.NoError(t, a.Offer("x", x))
	y := b.attach(t, "x")
	wanted := b.Withdrawn("x")
	a.abandon()
	a.sim.Kill()
	b.peers.die()
	testgpu.Receive(t, b.Done())
	require.ErrorIs(t, b.Err(), cuda.ErrPeerGone)
	testgpu.Receive(t, wanted)
	require.Equal(t, []float32{1, 2}, b.read(t, y))
	b.peers.gone()
	require.Equal(t, []float32{1, 2}, b.read(t, y))
	require.NoError(t, b.Shutdown(t.Context()))
	require.Zero(t, b.live())
	a.peers.gone()
	require.NoError(t, x.Close())
}

// A process that says goodbye and ends at once has left, and is not taken for dead.
func TestGoodbyeBeforeDeath(t *testing.T) {
	for range 20 {
		a, b := pair(t)
		require.NoError(t, b.Session.Close())
		a.peers.die()
		testgpu.Receive(t, a.Done())
		require.ErrorIs(t, a.Err(), ErrLeft)
	}
}

// It leaves and dies before it has let go.
func TestGoodbyeAndDeath(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, x.Close())
	b.attach(t, "x")
	b.mu.Lock()
	b.left = true // says so, and does nothing about what is attached
	b.post(message{Type: typeLeave})
	b.mu.Unlock()
	testgpu.Receive(t, a.Done())
	require.ErrorIs(t, a.Err(), ErrLeft)
	shut := testgpu.Go(func() error { return a.Shutdown(context.Background()) })
	testgpu.NotReady(t, shut)
	b.abandon()
	b.sim.Kill()
	a.peers.die()
	testgpu.NotReady(t, shut)
	a.peers.gone()
	require.NoError(t, testgpu.Receive(t, shut))
	require.ErrorIs(t, a.Err(), ErrLeft)
	b.peers.gone()
}

func TestHooksOfLifeAndDeath(t *testing.T) {
	listen := func(s *end) chan bool {
		gone := make(chan bool, 2)
		s.onGone(func() { gone <- true })
		return gone
	}
	stopped := func(s *end) {
		stop := s.onGone(func() { t.Error("called after stop") })
		stop()
		stop()
	}
	t.Run("left", func(t *testing.T) {
		a, b := pair(t)
		gone := listen(a)
		stopped(a)
		x := a.memory(t, 1)
		require.NoError(t, a.Offer("x", x))
		require.NoError(t, x.Close())
		y := b.attach(t, "x")
		require.NoError(t, a.Session.Close())
		testgpu.NotReady(t, gone)
		require.NoError(t, y.Close())
		testgpu.Receive(t, gone)
		testgpu.Receive(t, listen(a))
	})
	t.Run("died", func(t *testing.T) {
		a, b := pair(t)
		gone := listen(a)
		stopped(a)
		b.abandon()
		testgpu.Receive(t, a.Done())
		require.ErrorIs(t, a.Err(), cuda.ErrPeerGone)
		require.NoError(t, a.Session.Close())
		testgpu.NotReady(t, gone)
		a.peers.die()
		testgpu.NotReady(t, gone)
		a.peers.gone()
		testgpu.Receive(t, gone)
		b.peers.gone()
	})
}

// A process that has ended right after its hello is a peer that is gone.
func TestPeerEndsAtOnce(t *testing.T) {
	leavesNothing(t)
	l := listening(t, nil)
	ended := &driver.Processes{Find: proc.Find, Watch: func(driver.Process, func(), func()) (func(), error) { return nil, fs.ErrNotExist }}
	s, err := Dial(t.Context(), l.path, &Options{processes: ended})
	require.NoError(t, err)
	testgpu.Receive(t, s.Done())
	require.ErrorIs(t, s.Err(), cuda.ErrPeerGone)
	require.NoError(t, s.Close())
	s, err = l.Accept(within(t, 5*time.Second))
	require.NoError(t, err)
	testgpu.Receive(t, s.Done())
	require.NoError(t, s.Close())
}

// A process that cannot be watched is no peer.
func TestUnwatchablePeer(t *testing.T) {
	for _, test := range []struct {
		procs *driver.Processes
		is    error
	}{
		{&driver.Processes{Find: proc.Find, Watch: func(driver.Process, func(), func()) (func(), error) { return nil, errors.ErrUnsupported }}, errors.ErrUnsupported},
		{&driver.Processes{Find: func(int) (driver.Process, error) { return driver.Process{}, errors.ErrUnsupported }}, errors.ErrUnsupported},
	} {
		leavesNothing(t)
		l := listening(t, nil)
		_, err := Dial(t.Context(), l.path, &Options{processes: test.procs})
		require.ErrorIs(t, err, test.is)
		s, err := l.Accept(within(t, testgpu.Soon))
		if err == nil { // it had said hello already
			testgpu.Receive(t, s.Done())
			require.NoError(t, s.Close())
		}
	}
}
