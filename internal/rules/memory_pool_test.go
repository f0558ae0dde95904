package rules_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestMemoryPool(t *testing.T) {
	testgpu.Rule(t, "29 the pool's figures", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		pool, err := d.MemoryPool()
		require.NoError(t, err)
		second, err := d.MemoryPool()
		require.NoError(t, err)
		require.Same(t, pool, second)
		require.Same(t, d, pool.Device())
		require.NotZero(t, pool.Handle())
		require.NoError(t, d.Synchronize())
		require.NoError(t, pool.Trim(0))
		require.NoError(t, pool.ResetHigh())
		// The driver counts as used for ever what others freed by cuMemFree.
		lost := testgpu.PoolStats(t, d).Used
		require.Equal(t, cuda.PoolStats{Used: lost, UsedHigh: lost}, testgpu.PoolStats(t, d))

		const size = 10 << 20
		buf := testgpu.AllocAsync[byte](t, s, size)
		now := testgpu.PoolStats(t, d)
		require.Equal(t, size+lost, now.Used)
		require.Equal(t, size+lost, now.UsedHigh)
		require.GreaterOrEqual(t, now.Reserved, uint64(size))
		require.Equal(t, now.Reserved, now.ReservedHigh)
		require.NoError(t, buf.Close())
		require.NoError(t, s.Synchronize())
		after := testgpu.PoolStats(t, d)
		require.Equal(t, lost, after.Used)
		require.Equal(t, size+lost, after.UsedHigh)
		require.Equal(t, now.Reserved, after.Reserved, "kept for the next")
		require.NoError(t, pool.ResetHigh())
		require.Equal(t, lost, testgpu.PoolStats(t, d).UsedHigh)

		require.NoError(t, pool.Trim(now.Reserved))
		require.Equal(t, now.Reserved, testgpu.PoolStats(t, d).Reserved)
		require.NoError(t, pool.Trim(0))
		require.Zero(t, testgpu.PoolStats(t, d).Reserved)

		require.NoError(t, pool.SetReleaseThreshold(0))
		require.NoError(t, testgpu.AllocAsync[byte](t, s, size).Close())
		require.NotZero(t, testgpu.PoolStats(t, d).Reserved)
		require.NoError(t, d.Synchronize())
		require.Zero(t, testgpu.PoolStats(t, d).Reserved, "given back when the device is waited for")
		require.NoError(t, pool.SetReleaseThreshold(1<<40))
		require.NoError(t, testgpu.AllocAsync[byte](t, s, size).Close())
		require.NoError(t, d.Synchronize())
		require.NotZero(t, testgpu.PoolStats(t, d).Reserved)
	})

	testgpu.Rule(t, "23 no allocation on a captured stream", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		buf := testgpu.Filled(t, s, 1)
		g, err := s.Capture(func() error {
			_, err := cuda.AllocAsync[uint32](s, 4)
			require.ErrorIs(t, err, cuda.ErrCapturing)
			return cuda.Fill(s, buf, 2)
		})
		require.NoError(t, err, "the capture lives on")
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, g.Close())
	})

	for _, c := range []struct {
		name string
		busy func(home, user *cuda.Stream) *cuda.Stream
	}{
		{"home", func(home, _ *cuda.Stream) *cuda.Stream { return home }},
		{"using stream", func(_, user *cuda.Stream) *cuda.Stream { return user }},
	} {
		testgpu.Rule(t, "23 memory closed while its "+c.name+" is captured", 1, func(t *testing.T, b *testgpu.Backend) {
			b, calls := testgpu.Counted(t, b, nil)
			d := b.Device()
			home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			buf, other := testgpu.AllocAsync[uint32](t, home, 16), testgpu.Alloc[uint32](t, d, 16)
			require.NoError(t, user.WaitStream(home))
			require.NoError(t, cuda.Fill(user, buf, 1))
			g, err := c.busy(home, user).Capture(func() error {
				require.NoError(t, buf.Close())
				require.Zero(t, calls.Count("MemFreeAsync"))
				return cuda.Fill(c.busy(home, user), other, 1)
			})
			require.NoError(t, err, "the capture lives on")
			testgpu.CollectUntil(t, func() bool { return calls.Count("MemFreeAsync") == 1 }) // now that the capture has ended
			require.NoError(t, g.Close())
			require.NoError(t, d.Synchronize())
		})
	}

	testgpu.Rule(t, "23 memory that a capture uses lives with the graph", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		s, home, second := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		buf, host := testgpu.AllocAsync[uint32](t, home, 16), testgpu.AllocHost[uint32](t, d, 16)
		plain := testgpu.Alloc[uint32](t, d, 16)
		out := testgpu.AllocHost[uint32](t, d, 16)
		spin := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_spin")
		require.NoError(t, s.WaitStream(home))
		g, err := s.Capture(func() error {
			return errors.Join(cuda.Fill(s, buf, 4), cuda.Copy(s, plain, buf), cuda.Copy(s, host, plain), cuda.Copy(s, out, host))
		})
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.NoError(t, buf.Close())
		require.NoError(t, host.Close())
		require.NoError(t, plain.Close())
		require.Zero(t, calls.Count("MemFreeAsync")+calls.Count("MemFreeHost")+calls.Count("MemFree"))
		for range 2 {
			clear(out.Slice())
			require.NoError(t, x.Launch(s))
			require.NoError(t, s.Synchronize())
			testgpu.RequireAll(t, 4, out.Slice())
		}
		clear(out.Slice())
		require.NoError(t, spin.Launch(second, cuda.Grid1D(1, 1), uint64(20*time.Millisecond)))
		require.NoError(t, x.Launch(second))
		require.NoError(t, x.Close()) // the plain memory waits for the device
		require.NoError(t, d.Synchronize())
		calls.WaitCount(t, "MemFreeAsync", 1)
		calls.WaitCount(t, "MemFree", 1)
		testgpu.RequireAll(t, 4, out.Slice())
		require.NoError(t, out.Close())
		calls.WaitCount(t, "MemFreeHost", 2)
	})

	testgpu.Rule(t, "23 memory comes and goes beside a capture in the strictest mode", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s, home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		target := testgpu.Alloc[uint32](t, d, 16)
		comeAndGo := func() error {
			buf, err := cuda.AllocAsync[uint32](home, 16)
			if err != nil {
				return err
			}
			host, err := cuda.AllocHost[uint32](d, 16, nil)
			if err != nil {
				return err
			}
			plain, err := cuda.Alloc[uint32](d, 16)
			return errors.Join(err, user.WaitStream(home), cuda.Copy(user, host, buf), buf.Close(), host.Close(), plain.Close())
		}
		for _, elsewhere := range []bool{false, true} {
			g, err := s.Capture(func() error {
				if !elsewhere {
					require.NoError(t, comeAndGo())
				} else {
					done := make(chan error)
					go func() { done <- comeAndGo() }()
					require.NoError(t, <-done)
				}
				pool, err := d.MemoryPool()
				require.NoError(t, err)
				require.NoError(t, pool.Trim(1<<30))
				return cuda.Fill(s, target, 1)
			})
			require.NoError(t, err)
			require.NoError(t, g.Close())
		}
		require.NoError(t, d.Synchronize())
	})
}
