package cuda_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// captureModes are the driver's. This package captures in relaxed mode alone, but other
// libraries do not.
var captureModes = map[string]driver.CaptureMode{
	"relaxed": driver.CaptureModeRelaxed, "thread-local": driver.CaptureModeThreadLocal, "global": driver.CaptureModeGlobal}

// captureElsewhere captures what f enqueues on s as another library does, by the driver's own
// calls in a mode, on a locked thread.
func captureElsewhere(s *cuda.Stream, mode driver.CaptureMode, f func() error) error {
	_, err := nodesElsewhere(s, mode, f)
	return err
}

// nodesElsewhere is captureElsewhere, and says how many nodes the graph had.
func nodesElsewhere(s *cuda.Stream, mode driver.CaptureMode, f func() error) (nodes uint64, err error) {
	runtime.LockOSThread() // where it must end
	defer runtime.UnlockOSThread()
	api := s.Device().Driver().API()
	r := api.StreamBeginCapture(s.Handle(), mode)
	if r != driver.Success {
		return 0, r
	}
	failed := f()
	g, r := api.StreamEndCapture(s.Handle())
	if r != driver.Success {
		return 0, errors.Join(failed, r)
	}
	nodes, r = api.GraphGetNodes(g, nil)
	if r != driver.Success {
		return 0, errors.Join(failed, r)
	}
	return nodes, errors.Join(failed, failure(api.GraphDestroy(g)))
}

func failure(r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	return r
}

// captureWays are this package's way to capture, and another library's in each mode. The
// graph is dropped.
func captureWays() map[string]func(s *cuda.Stream, f func() error) error {
	ways := map[string]func(s *cuda.Stream, f func() error) error{
		"this package's": func(s *cuda.Stream, f func() error) error {
			g, err := s.Capture(f)
			if err != nil {
				return err
			}
			return g.Close()
		},
	}
	for name, mode := range captureModes {
		ways["another's, "+name] = func(s *cuda.Stream, f func() error) error { return captureElsewhere(s, mode, f) }
	}
	return ways
}

// capture makes a graph of what f enqueues on s.
func capture(t testing.TB, s *cuda.Stream, f func()) *cuda.Graph {
	t.Helper()
	g, err := s.Capture(func() error { f(); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func instantiate(t testing.TB, g *cuda.Graph) *cuda.GraphExec {
	t.Helper()
	x, err := g.Instantiate()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// pipe is work whose result says whether it was done, in this order and with
// which values: in is copied to buf, and buf to out.
type pipe struct {
	in, out *cuda.HostBuffer[uint32]
	buf     *cuda.Buffer[uint32]
}

func newPipe(t testing.TB, d *cuda.Device) *pipe {
	return &pipe{in: allocHost[uint32](t, d, 1000), out: allocHost[uint32](t, d, 1000), buf: alloc[uint32](t, d, 1000)}
}

func (p *pipe) enqueue(t testing.TB, s *cuda.Stream) {
	t.Helper()
	require.NoError(t, cuda.Copy(s, p.buf, p.in))
	require.NoError(t, cuda.Copy(s, p.out, p.buf))
}

// set puts v in and clears out.
func (p *pipe) set(v uint32) {
	clear(p.out.Slice())
	for i := range p.in.Slice() {
		p.in.Slice()[i] = v
	}
}

func (p *pipe) require(t testing.TB, want uint32) {
	t.Helper()
	for _, v := range p.out.Slice() {
		require.Equal(t, want, v)
	}
}

// runs fails the test unless each launch of x on s takes new values through p.
func (p *pipe) runs(t testing.TB, x *cuda.GraphExec, s *cuda.Stream) {
	t.Helper()
	for v := range uint32(2) {
		p.set(v + 7)
		require.NoError(t, x.Launch(s))
		require.NoError(t, s.Synchronize())
		p.require(t, v+7)
	}
}

func external() *cuda.EventOptions { return &cuda.EventOptions{External: true} }

func TestCaptureRules(t *testing.T) {
	rule(t, "23 work is captured and not done", 1, func(t *testing.T, b *backend) {
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		p.set(1)
		g, err := s.Capture(func() error {
			p.enqueue(t, s)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, s.Synchronize())
		p.require(t, 0)
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 2, n)
		p.runs(t, instantiate(t, g), s)
		require.NoError(t, g.Close())
	})

	rule(t, "23 events fork and join a capture", 1, func(t *testing.T, b *backend) {
		s, second, third := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		blocker := newStream(t, b.dev(), nil)
		gate, passed := newEvent(t, external()), newEvent(t, external())
		fork, join := newEvent(t, nil), newEvent(t, nil)
		p, other := newPipe(t, b.dev()), newPipe(t, b.dev())
		g := capture(t, s, func() {
			require.NoError(t, cuda.Copy(s, p.buf, p.in))
			require.NoError(t, cuda.Copy(s, other.buf, p.buf))
			require.NoError(t, fork.Record(s))
			require.NoError(t, fork.Wait(second))
			require.NoError(t, gate.Wait(second))
			require.NoError(t, cuda.Copy(second, p.out, p.buf))
			require.NoError(t, join.Record(second))
			require.NoError(t, third.WaitStream(s))
			require.NoError(t, cuda.Copy(third, other.out, other.buf))
			require.NoError(t, passed.Record(third))
			require.NoError(t, join.Wait(s))
			require.NoError(t, s.WaitStream(third))
			require.NoError(t, cuda.Fill(s, p.buf, 0))
		})
		for _, joined := range []*cuda.Stream{s, second, third} {
			require.NoError(t, joined.Synchronize(), "the capture has ended for all of them")
		}
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 7, n, "ordinary events are edges")
		x := instantiate(t, g)
		for v := range uint32(2) {
			p.set(v + 1)
			clear(other.out.Slice())
			release := hold(t, blocker)
			require.NoError(t, gate.Record(blocker))
			require.NoError(t, x.Launch(s))
			require.NoError(t, passed.Synchronize(), "the third stream's branch waits for nobody")
			other.require(t, v+1)
			p.require(t, 0)
			time.Sleep(soon)
			require.False(t, query(t, s), "the join waits for both branches")
			release()
			require.NoError(t, s.Synchronize())
			p.require(t, v+1)
		}
	})

	rule(t, "23 asking for an event of a capture that goes on is refused and harms nothing", 1, func(t *testing.T, b *backend) {
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		e := newEvent(t, timed())
		refused := func() {
			t.Helper()
			_, queryErr := e.Query()
			_, elapsedErr := e.ElapsedTime(e)
			for _, err := range []error{queryErr, elapsedErr, e.Synchronize(), e.SynchronizeContext(t.Context()), <-e.Done()} {
				require.ErrorIs(t, err, cuda.ErrCaptured)
			}
		}
		g := capture(t, s, func() {
			require.NoError(t, e.Record(s))
			refused()
			p.enqueue(t, s)
		})
		refused()
		require.ErrorIs(t, e.Wait(s), cuda.ErrCaptured)
		_, err := s.Capture(func() error { return e.Wait(s) })
		require.ErrorIs(t, err, cuda.ErrCapturing)
		p.runs(t, instantiate(t, g), s)
		refused()
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize(), "recorded outside, it is an ordinary event again")
		require.True(t, query(t, e))
		require.NoError(t, e.Wait(s))
		_, err = e.ElapsedTime(e)
		require.NoError(t, err)
	})

	rule(t, "23 a wait keeps to its record when the event is recorded in a capture, and the capture goes on", 1, func(t *testing.T, b *backend) {
		busy, s := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		p := newPipe(t, b.dev())
		release := hold(t, busy)
		own, shared := newEvent(t, nil), newEvent(t, nil)
		require.NoError(t, own.Record(busy))
		require.NoError(t, shared.Record(busy))
		shared.Handle() // others may record it, but not what it has in the capture
		var waits []<-chan error
		for range 20 {
			waits = append(waits, own.Done(), shared.Done())
		}
		g := capture(t, s, func() {
			require.NoError(t, own.Record(s))
			require.NoError(t, shared.Record(s))
			require.ErrorIs(t, shared.Synchronize(), cuda.ErrCaptured)
			p.enqueue(t, s)
		})
		for _, w := range waits {
			require.Empty(t, w)
		}
		release()
		for _, w := range waits {
			require.NoError(t, <-w)
		}
		p.runs(t, instantiate(t, g), s)
	})

	rule(t, "13 IsCapturing is true of every stream of the capture", 1, func(t *testing.T, b *backend) {
		s, joined, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		capturing := func(s *cuda.Stream) bool {
			c, err := s.IsCapturing()
			require.NoError(t, err)
			return c
		}
		capture(t, s, func() {
			require.False(t, capturing(joined))
			require.NoError(t, joined.WaitStream(s))
			require.True(t, capturing(s))
			require.True(t, capturing(joined))
			require.False(t, capturing(other))
			require.False(t, capturing(b.dev().DefaultStream()))
			require.NoError(t, s.WaitStream(joined))
		})
		require.False(t, capturing(s))
		require.False(t, capturing(joined))
	})

	rule(t, "23 what would end a capture is refused, and the capture goes on", 1, func(t *testing.T, b *backend) {
		s, joined, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		p, unused := newPipe(t, b.dev()), newPipe(t, b.dev())
		x := instantiate(t, capture(t, other, func() { unused.enqueue(t, other) }))
		outside := newEvent(t, nil)
		require.NoError(t, outside.Record(other))
		slice := make([]uint32, 1000)
		refusals := func(s *cuda.Stream) map[string]error {
			errs := map[string]error{}
			_, errs["Query"] = s.Query()
			errs["Synchronize"] = s.Synchronize()
			errs["SynchronizeContext"] = s.SynchronizeContext(t.Context())
			errs["Device.Synchronize"] = b.dev().Synchronize()
			errs["Launch"] = x.Launch(s)
			errs["Upload"] = x.Upload(s)
			_, errs["Capture"] = s.Capture(func() error { return nil })
			_, errs["AllocAsync"] = cuda.AllocAsync[uint32](s, 1)
			errs["CopyFromSlice"] = cuda.CopyFromSlice(t.Context(), s, unused.buf, slice)
			errs["CopyToSlice"] = cuda.CopyToSlice(t.Context(), s, slice, unused.buf)
			errs["WaitEvent of outside"] = s.WaitEvent(outside)
			errs["WaitStream of outside"] = s.WaitStream(other)
			return errs
		}
		g := capture(t, s, func() {
			require.NoError(t, cuda.Copy(s, p.buf, p.in))
			require.NoError(t, joined.WaitStream(s))
			for _, s := range []*cuda.Stream{s, joined} {
				for name, err := range refusals(s) {
					require.ErrorIs(t, err, cuda.ErrCapturing, name)
				}
			}
			require.NoError(t, s.WaitEvent(newEvent(t, nil)), "never recorded, it says nothing")
			require.NoError(t, cuda.Copy(joined, p.out, p.buf))
			require.NoError(t, s.WaitStream(joined))
			unused.runs(t, x, other)
		})
		p.runs(t, instantiate(t, g), s)
		require.NoError(t, b.dev().Synchronize())
	})

	rule(t, "23 a device that has joined a capture is not waited for", 2, func(t *testing.T, b *backend) {
		s, there := newStream(t, b.devices[0], nil), newStream(t, b.devices[1], nil)
		byEvent := newStream(t, b.devices[1], nil)
		for _, join := range []func() error{
			func() error { return there.WaitStream(s) },
			func() error {
				e := newEvent(t, nil)
				if err := e.Record(s); err != nil {
					return err
				}
				return e.Wait(byEvent)
			},
		} {
			capture(t, s, func() {
				require.NoError(t, b.devices[1].Synchronize())
				require.NoError(t, join())
				require.ErrorIs(t, b.devices[1].Synchronize(), cuda.ErrCapturing)
				for _, j := range []*cuda.Stream{there, byEvent} {
					if c, _ := j.IsCapturing(); c {
						require.NoError(t, s.WaitStream(j))
					}
				}
			})
			require.NoError(t, b.devices[1].Synchronize())
		}
	})
}
