package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestCaptureRules(t *testing.T) {
	testgpu.Rule(t, "23 work is captured and not done", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		p.Set(1)
		g, err := s.Capture(func() error {
			p.Enqueue(t, s)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, s.Synchronize())
		p.Require(t, 0)
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 2, n)
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
		require.NoError(t, g.Close())
	})

	testgpu.Rule(t, "23 events fork and join a capture", 1, func(t *testing.T, b *testgpu.Backend) {
		s, second, third := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		blocker := testgpu.NewStream(t, b.Device(), nil)
		gate, passed := testgpu.NewEvent(t, testgpu.External()), testgpu.NewEvent(t, testgpu.External())
		fork, join := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		p, other := testgpu.NewPipe(t, b.Device()), testgpu.NewPipe(t, b.Device())
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, cuda.Copy(s, other.Buf, p.Buf))
			require.NoError(t, fork.Record(s))
			require.NoError(t, fork.Wait(second))
			require.NoError(t, gate.Wait(second))
			require.NoError(t, cuda.Copy(second, p.Out, p.Buf))
			require.NoError(t, join.Record(second))
			require.NoError(t, third.WaitStream(s))
			require.NoError(t, cuda.Copy(third, other.Out, other.Buf))
			require.NoError(t, passed.Record(third))
			require.NoError(t, join.Wait(s))
			require.NoError(t, s.WaitStream(third))
			require.NoError(t, cuda.Fill(s, p.Buf, 0))
		})
		for _, joined := range []*cuda.Stream{s, second, third} {
			require.NoError(t, joined.Synchronize(), "the capture has ended for all of them")
		}
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 7, n, "ordinary events are edges")
		x := testgpu.Instantiate(t, g)
		for v := range uint32(2) {
			p.Set(v + 1)
			clear(other.Out.Slice())
			release := testgpu.Hold(t, blocker)
			require.NoError(t, gate.Record(blocker))
			require.NoError(t, x.Launch(s))
			require.NoError(t, passed.Synchronize(), "the third stream's branch waits for nobody")
			other.Require(t, v+1)
			p.Require(t, 0)
			time.Sleep(testgpu.Soon)
			require.False(t, testgpu.Query(t, s), "the join waits for both branches")
			release()
			require.NoError(t, s.Synchronize())
			p.Require(t, v+1)
		}
	})

	testgpu.Rule(t, "23 asking for an event of a capture that goes on is refused and harms nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		e := testgpu.NewEvent(t, testgpu.Timed())
		refused := func() {
			t.Helper()
			_, queryErr := e.Query()
			_, elapsedErr := e.ElapsedTime(e)
			for _, err := range []error{queryErr, elapsedErr, e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
				require.ErrorIs(t, err, cuda.ErrCaptured)
			}
		}
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, e.Record(s))
			refused()
			p.Enqueue(t, s)
		})
		refused()
		require.ErrorIs(t, e.Wait(s), cuda.ErrCaptured)
		_, err := s.Capture(func() error { return e.Wait(s) })
		require.ErrorIs(t, err, cuda.ErrCapturing)
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
		refused()
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize(), "recorded outside, it is an ordinary event again")
		require.True(t, testgpu.Query(t, e))
		require.NoError(t, e.Wait(s))
		_, err = e.ElapsedTime(e)
		require.NoError(t, err)
	})

	testgpu.Rule(t, "23 a wait keeps to its record when the event is recorded in a capture, and the capture goes on", 1, func(t *testing.T, b *testgpu.Backend) {
		busy, s := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		p := testgpu.NewPipe(t, b.Device())
		release := testgpu.Hold(t, busy)
		own, shared := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		require.NoError(t, own.Record(busy))
		require.NoError(t, shared.Record(busy))
		shared.Handle() // others may record it, but not what it has in the capture
		var waits []<-chan error
		for range 20 {
			waits = append(waits, own.Done(), shared.Done())
		}
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, own.Record(s))
			require.NoError(t, shared.Record(s))
			require.ErrorIs(t, shared.Synchronize(), cuda.ErrCaptured)
			p.Enqueue(t, s)
		})
		for _, w := range waits {
			require.Empty(t, w)
		}
		release()
		for _, w := range waits {
			require.NoError(t, <-w)
		}
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
	})

	testgpu.Rule(t, "13 IsCapturing is true of every stream of the capture", 1, func(t *testing.T, b *testgpu.Backend) {
		s, joined, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		capturing := func(s *cuda.Stream) bool {
			c, err := s.IsCapturing()
			require.NoError(t, err)
			return c
		}
		testgpu.Capture(t, s, func() {
			require.False(t, capturing(joined))
			require.NoError(t, joined.WaitStream(s))
			require.True(t, capturing(s))
			require.True(t, capturing(joined))
			require.False(t, capturing(other))
			require.False(t, capturing(b.Device().DefaultStream()))
			require.NoError(t, s.WaitStream(joined))
		})
		require.False(t, capturing(s))
		require.False(t, capturing(joined))
	})

	testgpu.Rule(t, "23 what would end a capture is refused, and the capture goes on", 1, func(t *testing.T, b *testgpu.Backend) {
		s, joined, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		p, unused := testgpu.NewPipe(t, b.Device()), testgpu.NewPipe(t, b.Device())
		x := testgpu.Instantiate(t, testgpu.Capture(t, other, func() { unused.Enqueue(t, other) }))
		outside := testgpu.NewEvent(t, nil)
		require.NoError(t, outside.Record(other))
		slice := make([]uint32, 1000)
		refusals := func(s *cuda.Stream) map[string]error {
			errs := map[string]error{}
			_, errs["Query"] = s.Query()
			errs["Synchronize"] = s.Synchronize()
			errs["SynchronizeContext"] = s.SynchronizeContext(t.Context())
			errs["Device.Synchronize"] = b.Device().Synchronize()
			errs["Launch"] = x.Launch(s)
			errs["Upload"] = x.Upload(s)
			_, errs["Capture"] = s.Capture(func() error { return nil })
			_, errs["AllocAsync"] = cuda.AllocAsync[uint32](s, 1)
			errs["CopyFromSlice"] = cuda.CopyFromSlice(t.Context(), s, unused.Buf, slice)
			errs["CopyToSlice"] = cuda.CopyToSlice(t.Context(), s, slice, unused.Buf)
			errs["WaitEvent of outside"] = s.WaitEvent(outside)
			errs["WaitStream of outside"] = s.WaitStream(other)
			return errs
		}
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, joined.WaitStream(s))
			for _, s := range []*cuda.Stream{s, joined} {
				for name, err := range refusals(s) {
					require.ErrorIs(t, err, cuda.ErrCapturing, name)
				}
			}
			require.NoError(t, s.WaitEvent(testgpu.NewEvent(t, nil)), "never recorded, it says nothing")
			require.NoError(t, cuda.Copy(joined, p.Out, p.Buf))
			require.NoError(t, s.WaitStream(joined))
			unused.RequireLaunches(t, x, other)
		})
		p.RequireLaunches(t, testgpu.Instantiate(t, g), s)
		require.NoError(t, b.Device().Synchronize())
	})

	testgpu.Rule(t, "23 a device that has joined a capture is not waited for", 2, func(t *testing.T, b *testgpu.Backend) {
		s, there := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		byEvent := testgpu.NewStream(t, b.Devices[1], nil)
		for _, join := range []func() error{
			func() error { return there.WaitStream(s) },
			func() error {
				e := testgpu.NewEvent(t, nil)
				if err := e.Record(s); err != nil {
					return err
				}
				return e.Wait(byEvent)
			},
		} {
			testgpu.Capture(t, s, func() {
				require.NoError(t, b.Devices[1].Synchronize())
				require.NoError(t, join())
				require.ErrorIs(t, b.Devices[1].Synchronize(), cuda.ErrCapturing)
				for _, j := range []*cuda.Stream{there, byEvent} {
					if c, _ := j.IsCapturing(); c {
						require.NoError(t, s.WaitStream(j))
					}
				}
			})
			require.NoError(t, b.Devices[1].Synchronize())
		}
	})
}
