package cuda_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

func TestGraphRules(t *testing.T) {
	rule(t, "22 external events time each replay of a graph", 1, func(t *testing.T, b *backend) {
		s, other, blocker := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		start, end := newEvent(t, &cuda.EventOptions{Timing: true, External: true}), newEvent(t, &cuda.EventOptions{Timing: true, External: true})
		gate := newEvent(t, external())
		g := capture(t, s, func() {
			require.NoError(t, start.Record(s))
			require.NoError(t, gate.Wait(s))
			require.NoError(t, end.Record(s))
			require.True(t, query(t, start), "an external event may be asked for")
		})
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.True(t, query(t, start))
		_, err = start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrNotRecorded)
		require.ErrorContains(t, err, "graph is launched")

		x := instantiate(t, g)
		require.NoError(t, x.Upload(s))
		for _, slow := range []bool{true, false, true} {
			began := time.Now()
			var atLeast time.Duration
			if slow {
				release := hold(t, blocker)
				require.NoError(t, gate.Record(blocker))
				require.NoError(t, x.Launch(other))
				require.NoError(t, start.Synchronize())
				held := time.Now()
				require.False(t, query(t, end))
				_, err := start.ElapsedTime(end)
				require.ErrorIs(t, err, cuda.ErrNotCompleted)
				time.Sleep(2 * soon)
				atLeast = time.Since(held) - time.Millisecond
				release()
			} else {
				require.NoError(t, x.Launch(other))
			}
			require.NoError(t, end.Synchronize())
			atMost := time.Since(began) + time.Millisecond
			took, err := start.ElapsedTime(end)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, atLeast)
			require.LessOrEqual(t, took, atMost)
			if !slow {
				require.Less(t, took, 2*soon, "measured anew")
			}
			require.NoError(t, other.Synchronize())
		}
	})

	rule(t, "22 whether an external event is a node depends on the stream it is given", 1, func(t *testing.T, b *backend) {
		s, other := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		start, end := newEvent(t, &cuda.EventOptions{Timing: true, External: true}), newEvent(t, &cuda.EventOptions{Timing: true, External: true})
		outside := func() {
			t.Helper()
			release := hold(t, other)
			require.NoError(t, start.Record(other))
			require.False(t, query(t, start))
			require.NoError(t, start.Wait(b.dev().DefaultStream()))
			require.NoError(t, end.Record(other))
			release()
			require.NoError(t, end.Synchronize())
			took, err := start.ElapsedTime(end)
			require.NoError(t, err)
			require.Positive(t, took)
		}
		outside()
		g := capture(t, s, func() { outside() })
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Zero(t, n)
		outside()
	})

	rule(t, "22 a graph waits for the record that an external event has at its launch", 1, func(t *testing.T, b *backend) {
		s, producer, p := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newPipe(t, b.dev())
		ready := newEvent(t, external())
		g := capture(t, s, func() {
			require.NoError(t, s.WaitEvent(ready)) // which no stream has recorded yet
			p.enqueue(t, s)
		})
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		x := instantiate(t, g)
		p.runs(t, x, s)
		for v := range uint32(2) {
			p.set(v + 1)
			release := hold(t, producer)
			require.NoError(t, producer.WaitEvent(ready))
			require.NoError(t, ready.Record(producer))
			require.NoError(t, x.Launch(s))
			time.Sleep(soon)
			require.False(t, query(t, s))
			p.require(t, 0)
			release()
			require.NoError(t, s.Synchronize())
			p.require(t, v+1)
		}
	})

	rule(t, "01 a launch comes after earlier work of its stream and before later work", 1, func(t *testing.T, b *backend) {
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		x := instantiate(t, capture(t, s, func() { p.enqueue(t, s) }))
		out := allocHost[uint32](t, b.dev(), 1000)
		for _, s := range []*cuda.Stream{s, newStream(t, b.dev(), nil), b.dev().DefaultStream()} {
			p.set(4)
			release := hold(t, s)
			require.NoError(t, cuda.Fill(s, p.buf, 9))
			require.NoError(t, x.Launch(s))
			require.NoError(t, cuda.Copy(s, out, p.buf))
			time.Sleep(soon)
			p.require(t, 0)
			release()
			require.NoError(t, s.Synchronize())
			p.require(t, 4)
			require.Equal(t, p.in.Slice(), out.Slice())
			clear(out.Slice())
		}
	})

	rule(t, "01 launches of one executable graph come one after the other", 1, func(t *testing.T, b *backend) {
		s, other, p := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), newPipe(t, b.dev())
		x := instantiate(t, capture(t, s, func() { p.enqueue(t, s) }))
		release := hold(t, s)
		require.NoError(t, x.Launch(s))
		require.NoError(t, x.Launch(other))
		time.Sleep(soon)
		require.False(t, query(t, other))
		release()
		require.NoError(t, other.Synchronize())
		require.True(t, query(t, s))
	})

	rule(t, "23 an update acts on later launches and lets go of what the old graph needed", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		before := b.drv.Stats()
		old, p := newPipe(t, b.dev()), newPipe(t, b.dev())
		made := func(p *pipe) *cuda.Graph {
			g, err := s.Capture(func() error { p.enqueue(t, s); return nil })
			require.NoError(t, err)
			return g
		}
		first, second := made(old), made(p)
		x := instantiate(t, first)
		require.NoError(t, first.Close())
		old.runs(t, x, s)
		release := hold(t, s)
		old.set(1)
		require.NoError(t, x.Launch(s)) // in flight during the update
		require.NoError(t, x.Update(second))
		release()
		require.NoError(t, s.Synchronize())
		old.require(t, 1)
		old.set(0)
		p.runs(t, x, s)
		old.require(t, 0)

		require.NoError(t, old.buf.Close())
		require.NoError(t, old.in.Close())
		require.Equal(t, before.Buffers+1, b.drv.Stats().Buffers, "nobody needs the old buffer")
		require.Equal(t, before.HostBuffers+4, b.drv.Stats().HostBuffers, "three, and the hold's word")
		require.NoError(t, second.Close())
		require.NoError(t, p.buf.Close())
		require.Equal(t, before.Buffers+1, b.drv.Stats().Buffers, "the executable graph needs the new one")
		p.runs(t, x, s)
		require.NoError(t, x.Close())
		require.Equal(t, before.Buffers, b.drv.Stats().Buffers)
	})

	rule(t, "23 an update to another shape is refused and changes nothing", 1, func(t *testing.T, b *backend) {
		s, p, other := newStream(t, b.dev(), nil), newPipe(t, b.dev()), newPipe(t, b.dev())
		x := instantiate(t, capture(t, s, func() { p.enqueue(t, s) }))
		before := b.drv.Stats()
		for name, f := range map[string]func(){
			"one node more": func() { other.enqueue(t, s); other.enqueue(t, s) },
			"another kind": func() {
				require.NoError(t, cuda.Copy(s, other.buf, other.in))
				require.NoError(t, cuda.Fill(s, other.buf, 1))
			},
		} {
			g, err := s.Capture(func() error { f(); return nil })
			require.NoError(t, err)
			err = x.Update(g)
			require.ErrorIs(t, err, driver.ErrorGraphExecUpdateFailure, name)
			require.ErrorContains(t, err, "instantiate")
			require.NoError(t, g.Close())
			p.runs(t, x, s)
		}
		require.Equal(t, before, b.drv.Stats())
	})

	rule(t, "29 a graph keeps its memory", 1, func(t *testing.T, b *backend) {
		s, home := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil)
		before := b.drv.Stats()
		p := newPipe(t, b.dev())
		pooled, err := cuda.AllocAsync[uint32](home, 1000)
		require.NoError(t, err)
		timing, waited := cuda.NewEvent(&cuda.EventOptions{Timing: true, External: true}), cuda.NewEvent(external())
		g, err := s.Capture(func() error {
			require.NoError(t, cuda.Copy(s, p.buf, p.in))
			require.NoError(t, cuda.Copy(s, pooled, p.buf))
			require.NoError(t, timing.Record(s))
			require.NoError(t, s.WaitEvent(waited))
			return cuda.Copy(s, p.out, pooled)
		})
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, pooled.Close())
		require.NoError(t, p.buf.Close())
		require.NoError(t, timing.Close())
		require.NoError(t, waited.Close())
		require.NoError(t, home.Synchronize())
		var again []*cuda.Buffer[uint32] // what a freed buffer's memory would be given to
		for range 8 {
			buf, err := cuda.AllocAsync[uint32](home, 1000)
			require.NoError(t, err)
			plain := alloc[uint32](t, b.dev(), 1000)
			require.NoError(t, cuda.Fill(home, buf, 0xbad))
			require.NoError(t, cuda.Fill(home, plain, 0xbad))
			again = append(again, buf, plain)
		}
		require.NoError(t, home.Synchronize())
		p.runs(t, x, s)
		for _, buf := range again {
			require.NoError(t, cuda.Copy(s, p.out, buf))
			require.NoError(t, s.Synchronize())
			p.require(t, 0xbad)
			require.NoError(t, buf.Close())
		}
		require.Equal(t, before.Buffers+2, b.drv.Stats().Buffers)
		require.Equal(t, before.Events, b.drv.Stats().Events)
		require.NoError(t, g.Close())
		p.runs(t, x, s)
		release := hold(t, s)
		p.set(6)
		require.NoError(t, x.Launch(s))
		require.NoError(t, p.in.Close())
		release()
		require.NoError(t, x.Close())
		require.NoError(t, s.Synchronize())
		p.require(t, 6)
		require.NoError(t, p.out.Close())
		after := b.drv.Stats()
		after.HostBuffers-- // the hold's word
		require.Equal(t, before, after)
	})

	rule(t, "29 an executable graph closed in flight runs to its end and keeps its memory until then", 1, func(t *testing.T, b *backend) {
		s, home, out := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), allocHost[uint32](t, b.dev(), 1000)
		pooled, err := cuda.AllocAsync[uint32](home, 1000)
		require.NoError(t, err)
		require.NoError(t, s.WaitStream(home))
		require.NoError(t, cuda.Fill(s, pooled, 3))
		g, err := s.Capture(func() error { return cuda.Copy(s, out, pooled) })
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		release := hold(t, s)
		require.NoError(t, x.Launch(s))
		require.NoError(t, g.Close())
		require.NoError(t, pooled.Close())
		require.NoError(t, x.Close())
		again, err := cuda.AllocAsync[uint32](home, 1000) // other memory
		require.NoError(t, err)
		require.NoError(t, cuda.Fill(home, again, 0xbad))
		require.NoError(t, home.Synchronize())
		release()
		require.NoError(t, s.Synchronize())
		for _, v := range out.Slice() {
			require.Equal(t, uint32(3), v)
		}
		require.NoError(t, again.Close())
	})

	rule(t, "24 closed graphs say so, and closing twice is nil", 1, func(t *testing.T, b *backend) {
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		g := capture(t, s, func() { p.enqueue(t, s) })
		x, open := instantiate(t, g), instantiate(t, g)
		require.Same(t, b.dev(), g.Device())
		require.Same(t, b.dev(), x.Device())
		require.Equal(t, fmt.Sprintf("cuda.Graph(device 0, %#x)", uintptr(g.Handle())), g.String())
		require.Equal(t, fmt.Sprintf("cuda.GraphExec(device 0, %#x)", uintptr(x.Handle())), x.String())
		for range 2 {
			require.NoError(t, x.Close())
		}
		for name, err := range map[string]error{"Launch": x.Launch(s), "Upload": x.Upload(s), "Update": x.Update(g)} {
			require.ErrorIs(t, err, cuda.ErrClosed, name)
		}
		for range 2 {
			require.NoError(t, g.Close())
		}
		_, nodesErr := g.Nodes()
		_, instantiateErr := g.Instantiate()
		for name, err := range map[string]error{"Nodes": nodesErr, "Instantiate": instantiateErr, "Update": open.Update(g)} {
			require.ErrorIs(t, err, cuda.ErrClosed, name)
		}
		gone, err := b.dev().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		require.ErrorIs(t, open.Launch(gone), cuda.ErrClosed)
		require.ErrorIs(t, open.Upload(gone), cuda.ErrClosed)
		p.runs(t, open, s)
	})

	rule(t, "01 many goroutines launch one executable graph", 1, func(t *testing.T, b *backend) {
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		g := capture(t, s, func() { p.enqueue(t, s) })
		x := instantiate(t, g)
		p.set(8)
		var wg sync.WaitGroup
		for range 8 {
			s := newStream(t, b.dev(), nil)
			wg.Go(func() {
				for range 50 {
					if err := x.Launch(s); err != nil {
						t.Error(err)
					}
				}
				if err := x.Update(g); err != nil {
					t.Error(err)
				}
				if _, err := g.Nodes(); err != nil {
					t.Error(err)
				}
				if err := s.Synchronize(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.require(t, 8)
	})
}
