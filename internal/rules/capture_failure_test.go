package rules_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Captures that fail, and several at once.
func TestCaptureFailures(t *testing.T) {
	testgpu.Rule(t, "23 a capture that fails says why and leaves a usable stream", 1, func(t *testing.T, b *testgpu.Backend) {
		s, joined, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		usable := func() {
			t.Helper()
			p.Set(3)
			p.Enqueue(t, s)
			require.NoError(t, s.Synchronize())
			p.Require(t, 3)
			p.RequireLaunches(t, testgpu.Instantiate(t, testgpu.Capture(t, s, func() { p.Enqueue(t, s) })), s)
			require.NoError(t, joined.Synchronize())
		}
		before := b.Driver.Stats()
		mine := errors.New("mine")
		work := func() {
			buf, err := cuda.AllocAsync[uint32](joined, 1000)
			require.NoError(t, err)
			require.NoError(t, cuda.Copy(s, buf, p.In))
			require.NoError(t, testgpu.NewEvent(t, testgpu.External()).Record(s))
			require.NoError(t, buf.Close())
		}
		require.NoError(t, joined.WaitStream(s)) // so that the spare events are there
		require.NoError(t, s.WaitStream(joined))

		g, err := s.Capture(func() error { work(); return mine })
		require.ErrorIs(t, err, mine)
		require.Nil(t, g)
		require.Equal(t, before.Buffers, b.Driver.Stats().Buffers)
		usable()

		g, err = s.Capture(func() error {
			require.NoError(t, joined.WaitStream(s))
			return cuda.Fill(joined, p.Buf, 1)
		})
		require.ErrorIs(t, err, driver.ErrorStreamCaptureUnjoined)
		require.ErrorContains(t, err, "WaitStream")
		require.Nil(t, g)
		usable()

		_, err = s.Capture(func() error {
			b.Driver.API().StreamQuery(s.Handle()) // behind the library's back
			return mine
		})
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, driver.ErrorStreamCaptureInvalidated)
		usable()

		require.PanicsWithValue(t, "boom", func() {
			_, _ = s.Capture(func() error { work(); panic("boom") })
		})
		usable()
		var gone sync.WaitGroup
		gone.Go(func() {
			_, _ = s.Capture(func() error { work(); runtime.Goexit(); return nil })
			t.Error("Capture returned after Goexit")
		})
		gone.Wait()
		usable()
		require.Equal(t, before.Buffers, b.Driver.Stats().Buffers)
	})

	testgpu.Rule(t, "23 what cannot be captured is refused", 1, func(t *testing.T, b *testgpu.Backend) {
		never := func() error { t.Error("called"); return nil }
		s := testgpu.NewStream(t, b.Device(), nil)
		_, onDefault := b.Device().DefaultStream().Capture(never)
		_, nilFunc := s.Capture(nil)
		_, onNil := (*cuda.Stream)(nil).Capture(never)
		for name, err := range map[string]error{"default stream": onDefault, "nil function": nilFunc, "nil stream": onNil} {
			require.ErrorIs(t, err, cuda.ErrInvalid, name)
		}
		gone, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		_, err = gone.Capture(never)
		require.ErrorIs(t, err, cuda.ErrClosed)
	})

	testgpu.Rule(t, "23 a default stream waits for nothing that is being captured", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, opts := range []*cuda.StreamOptions{nil, {SyncWithDefault: true}} {
			for _, d := range b.Devices { // of another device too
				s, e := testgpu.NewStream(t, b.Device(), opts), testgpu.NewEvent(t, nil)
				g, err := s.Capture(func() error {
					require.NoError(t, e.Record(s))
					require.ErrorIs(t, d.DefaultStream().WaitStream(s), cuda.ErrCapturing)
					require.ErrorIs(t, e.Wait(d.DefaultStream()), cuda.ErrCapturing)
					return nil
				})
				require.NoError(t, errors.Join(err, g.Close()))
				require.NoError(t, e.Record(s))
				require.NoError(t, e.Wait(d.DefaultStream()))
				require.NoError(t, e.Close())
			}
		}
	})

	testgpu.Rule(t, "23 a capture in any mode survives a busy scheduler", 1, func(t *testing.T, b *testgpu.Backend) {
		var noise atomic.Bool
		var wg sync.WaitGroup
		for range 4 * runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for !noise.Load() {
					runtime.Gosched()
				}
			})
		}
		defer wg.Wait()
		defer noise.Store(true)
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		for range 20 {
			g, err := s.Capture(func() error {
				for range 50 {
					runtime.Gosched()
				}
				p.Enqueue(t, s)
				runtime.Gosched()
				return nil
			})
			require.NoError(t, err)
			p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
			require.NoError(t, g.Close())
		}
	})

	testgpu.Rule(t, "23 two captures go on at once", 1, func(t *testing.T, b *testgpu.Backend) {
		var wg sync.WaitGroup
		both := make(chan struct{}, 2)
		for range 2 {
			s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			wg.Go(func() {
				g, err := s.Capture(func() error {
					both <- struct{}{}
					for len(both) < 2 {
						runtime.Gosched()
					}
					if err := cuda.Copy(s, p.Buf, p.In); err != nil {
						return err
					}
					return cuda.Copy(s, p.Out, p.Buf)
				})
				if err != nil {
					t.Error(err)
					return
				}
				defer g.Close()
				x, err := g.Instantiate()
				if err != nil {
					t.Error(err)
					return
				}
				defer x.Close()
				p.Set(5)
				if err := errors.Join(x.Launch(s), s.Synchronize()); err != nil {
					t.Error(err)
				}
				p.Require(t, 5)
			})
		}
		wg.Wait()
	})

	testgpu.Rule(t, "23 a stream of one capture does not wait for another's", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		e := testgpu.NewEvent(t, nil)
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, e.Record(s))
			p.Enqueue(t, s)
			testgpu.Capture(t, other, func() {
				require.ErrorIs(t, other.WaitEvent(e), cuda.ErrCapturing)
				require.ErrorIs(t, other.WaitStream(s), cuda.ErrCapturing)
				require.ErrorIs(t, s.WaitStream(other), cuda.ErrCapturing)
			})
		})
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
	})

	testgpu.Rule(t, "29 memory closed in a capture of its home is freed after it", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		buf, err := cuda.AllocAsync[uint32](s, 1000)
		require.NoError(t, err)
		pool, err := b.Device().MemoryPool()
		require.NoError(t, err)
		require.NoError(t, s.Synchronize())
		with, err := pool.Stats()
		require.NoError(t, err)
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, buf.Close())
			p.Enqueue(t, s)
		})
		require.NoError(t, s.Synchronize())
		without, err := pool.Stats()
		require.NoError(t, err)
		require.Less(t, without.Used, with.Used)
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
	})
}
