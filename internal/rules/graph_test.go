package rules_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestGraphRules(t *testing.T) {
	testgpu.Rule(t, "22 external events time each replay of a graph", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other, blocker := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		start, end := testgpu.NewEvent(t, &cuda.EventOptions{Timing: true, External: true}), testgpu.NewEvent(t, &cuda.EventOptions{Timing: true, External: true})
		gate := testgpu.NewEvent(t, testgpu.External())
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, start.Record(s))
			require.NoError(t, gate.Wait(s))
			require.NoError(t, end.Record(s))
			require.True(t, testgpu.Query(t, start), "an external event may be asked for")
		})
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.True(t, testgpu.Query(t, start))
		_, err = start.ElapsedTime(end)
		require.ErrorIs(t, err, cuda.ErrNotRecorded)
		require.ErrorContains(t, err, "graph is launched")

		x := testgpu.Instantiate(t, g)
		require.NoError(t, x.Upload(s))
		for _, slow := range []bool{true, false, true} {
			began := time.Now()
			var atLeast time.Duration
			if slow {
				release := testgpu.Hold(t, blocker)
				require.NoError(t, gate.Record(blocker))
				require.NoError(t, x.Launch(other))
				require.NoError(t, start.Synchronize())
				held := time.Now()
				require.False(t, testgpu.Query(t, end))
				_, err := start.ElapsedTime(end)
				require.ErrorIs(t, err, cuda.ErrNotCompleted)
				time.Sleep(2 * testgpu.Soon)
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
				require.Less(t, took, 2*testgpu.Soon, "measured anew")
			}
			require.NoError(t, other.Synchronize())
		}
	})

	testgpu.Rule(t, "22 whether an external event is a node depends on the stream it is given", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		start, end := testgpu.NewEvent(t, &cuda.EventOptions{Timing: true, External: true}), testgpu.NewEvent(t, &cuda.EventOptions{Timing: true, External: true})
		outside := func() {
			t.Helper()
			release := testgpu.Hold(t, other)
			require.NoError(t, start.Record(other))
			require.False(t, testgpu.Query(t, start))
			require.NoError(t, start.Wait(b.Device().DefaultStream()))
			require.NoError(t, end.Record(other))
			release()
			require.NoError(t, end.Synchronize())
			took, err := start.ElapsedTime(end)
			require.NoError(t, err)
			require.Positive(t, took)
		}
		outside()
		g := testgpu.Capture(t, s, func() { outside() })
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Zero(t, n)
		outside()
	})

	testgpu.Rule(t, "22 a graph waits for the record that an external event has at its launch", 1, func(t *testing.T, b *testgpu.Backend) {
		s, producer, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		ready := testgpu.NewEvent(t, testgpu.External())
		g := testgpu.Capture(t, s, func() {
			require.NoError(t, s.WaitEvent(ready)) // which no stream has recorded yet
			p.Enqueue(t, s)
		})
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		x := testgpu.Instantiate(t, g)
		p.RequireLaunches(t, x, s)
		for v := range uint32(2) {
			p.Set(v + 1)
			release := testgpu.Hold(t, producer)
			require.NoError(t, producer.WaitEvent(ready))
			require.NoError(t, ready.Record(producer))
			require.NoError(t, x.Launch(s))
			time.Sleep(testgpu.Soon)
			require.False(t, testgpu.Query(t, s))
			p.Require(t, 0)
			release()
			require.NoError(t, s.Synchronize())
			p.Require(t, v+1)
		}
	})

	testgpu.Rule(t, "01 a launch comes after earlier work of its stream and before later work", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() { p.Enqueue(t, s) }))
		out := testgpu.AllocHost[uint32](t, b.Device(), 1000)
		for _, s := range []*cuda.Stream{s, testgpu.NewStream(t, b.Device(), nil), b.Device().DefaultStream()} {
			p.Set(4)
			release := testgpu.Hold(t, s)
			require.NoError(t, cuda.Fill(s, p.Buf, 9))
			require.NoError(t, x.Launch(s))
			require.NoError(t, cuda.Copy(s, out, p.Buf))
			time.Sleep(testgpu.Soon)
			p.Require(t, 0)
			release()
			require.NoError(t, s.Synchronize())
			p.Require(t, 4)
			require.Equal(t, p.In.Slice(), out.Slice())
			clear(out.Slice())
		}
	})

	testgpu.Rule(t, "01 launches of one executable graph come one after the other", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() { p.Enqueue(t, s) }))
		release := testgpu.Hold(t, s)
		require.NoError(t, x.Launch(s))
		require.NoError(t, x.Launch(other))
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, other))
		release()
		require.NoError(t, other.Synchronize())
		require.True(t, testgpu.Query(t, s))
	})

	testgpu.Rule(t, "23 an update acts on later launches and releases what the old graph used", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		before := b.Driver.Stats()
		old, p := testgpu.NewPipe(t, b.Device()), testgpu.NewPipe(t, b.Device())
		made := func(p *testgpu.Pipe) *cuda.Graph {
			g, err := s.Capture(func() error { p.Enqueue(t, s); return nil })
			require.NoError(t, err)
			return g
		}
		first, second := made(old), made(p)
		x := testgpu.Instantiate(t, first)
		require.NoError(t, first.Close())
		old.RequireLaunches(t, x, s)
		release := testgpu.Hold(t, s)
		old.Set(1)
		require.NoError(t, x.Launch(s)) // in flight during the update
		require.NoError(t, x.Update(second))
		release()
		require.NoError(t, s.Synchronize())
		old.Require(t, 1)
		old.Set(0)
		p.RequireLaunches(t, x, s)
		old.Require(t, 0)

		require.NoError(t, old.Buf.Close())
		require.NoError(t, old.In.Close())
		require.Equal(t, before.Buffers+1, b.Driver.Stats().Buffers, "nobody needs the old buffer")
		require.Equal(t, before.HostBuffers+4, b.Driver.Stats().HostBuffers, "three, and the hold's word")
		require.NoError(t, second.Close())
		require.NoError(t, p.Buf.Close())
		require.Equal(t, before.Buffers+1, b.Driver.Stats().Buffers, "the executable graph needs the new one")
		p.RequireLaunches(t, x, s)
		require.NoError(t, x.Close())
		require.Equal(t, before.Buffers, b.Driver.Stats().Buffers)
	})

	testgpu.Rule(t, "23 an update to another shape is refused and changes nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device()), testgpu.NewPipe(t, b.Device())
		x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() { p.Enqueue(t, s) }))
		before := b.Driver.Stats()
		for name, f := range map[string]func(){
			"one node more": func() { other.Enqueue(t, s); other.Enqueue(t, s) },
			"another kind": func() {
				require.NoError(t, cuda.Copy(s, other.Buf, other.In))
				require.NoError(t, cuda.Fill(s, other.Buf, 1))
			},
		} {
			g, err := s.Capture(func() error { f(); return nil })
			require.NoError(t, err)
			err = x.Update(g)
			require.ErrorIs(t, err, driver.ErrorGraphExecUpdateFailure, name)
			require.ErrorContains(t, err, "instantiate")
			require.NoError(t, g.Close())
			p.RequireLaunches(t, x, s)
		}
		require.Equal(t, before, b.Driver.Stats())
	})

	testgpu.Rule(t, "29 a graph keeps its memory", 1, func(t *testing.T, b *testgpu.Backend) {
		s, home := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		before := b.Driver.Stats()
		p := testgpu.NewPipe(t, b.Device())
		pooled, err := cuda.AllocAsync[uint32](home, 1000)
		require.NoError(t, err)
		timing, waited := cuda.NewEvent(&cuda.EventOptions{Timing: true, External: true}), cuda.NewEvent(testgpu.External())
		g, err := s.Capture(func() error {
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, cuda.Copy(s, pooled, p.Buf))
			require.NoError(t, timing.Record(s))
			require.NoError(t, s.WaitEvent(waited))
			return cuda.Copy(s, p.Out, pooled)
		})
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, pooled.Close())
		require.NoError(t, p.Buf.Close())
		require.NoError(t, timing.Close())
		require.NoError(t, waited.Close())
		require.NoError(t, home.Synchronize())
		var again []*cuda.Buffer[uint32] // what a freed buffer's memory would be given to
		for range 8 {
			buf, err := cuda.AllocAsync[uint32](home, 1000)
			require.NoError(t, err)
			plain := testgpu.Alloc[uint32](t, b.Device(), 1000)
			require.NoError(t, cuda.Fill(home, buf, 0xbad))
			require.NoError(t, cuda.Fill(home, plain, 0xbad))
			again = append(again, buf, plain)
		}
		require.NoError(t, home.Synchronize())
		p.RequireLaunches(t, x, s)
		for _, buf := range again {
			require.NoError(t, cuda.Copy(s, p.Out, buf))
			require.NoError(t, s.Synchronize())
			p.Require(t, 0xbad)
			require.NoError(t, buf.Close())
		}
		require.Equal(t, before.Buffers+2, b.Driver.Stats().Buffers)
		require.Equal(t, before.Events, b.Driver.Stats().Events)
		require.NoError(t, g.Close())
		p.RequireLaunches(t, x, s)
		release := testgpu.Hold(t, s)
		p.Set(6)
		require.NoError(t, x.Launch(s))
		require.NoError(t, p.In.Close())
		release()
		require.NoError(t, x.Close())
		require.NoError(t, s.Synchronize())
		p.Require(t, 6)
		require.NoError(t, p.Out.Close())
		testgpu.WaitUntil(t, func() bool { // pinned memory is freed in the background
			after := b.Driver.Stats()
			after.HostBuffers-- // the hold's word
			return after == before
		})
	})

	testgpu.Rule(t, "29 an executable graph closed in flight runs to its end and keeps its memory until then", 1, func(t *testing.T, b *testgpu.Backend) {
		s, home, out := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.AllocHost[uint32](t, b.Device(), 1000)
		pooled, err := cuda.AllocAsync[uint32](home, 1000)
		require.NoError(t, err)
		require.NoError(t, s.WaitStream(home))
		require.NoError(t, cuda.Fill(s, pooled, 3))
		g, err := s.Capture(func() error { return cuda.Copy(s, out, pooled) })
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
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

	testgpu.Rule(t, "24 closed graphs say so, and closing twice is nil", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		g := testgpu.Capture(t, s, func() { p.Enqueue(t, s) })
		x, open := testgpu.Instantiate(t, g), testgpu.Instantiate(t, g)
		require.Same(t, b.Device(), g.Device())
		require.Same(t, b.Device(), x.Device())
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
		gone, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		require.ErrorIs(t, open.Launch(gone), cuda.ErrClosed)
		require.ErrorIs(t, open.Upload(gone), cuda.ErrClosed)
		p.RequireLaunches(t, open, s)
	})

	testgpu.Rule(t, "01 many goroutines launch one executable graph", 1, func(t *testing.T, b *testgpu.Backend) {
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		g := testgpu.Capture(t, s, func() { p.Enqueue(t, s) })
		x := testgpu.Instantiate(t, g)
		p.Set(8)
		var wg sync.WaitGroup
		for range 8 {
			s := testgpu.NewStream(t, b.Device(), nil)
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
		p.Require(t, 8)
	})
}
