package stress_test

import (
	"errors"
	"runtime"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// captureTurns are tests of calls beside captures that begin, go on and end.
var captureTurns = map[string]func(x *turn){
	"a question about an event that comes into a capture": func(x *turn) {
		s := x.stream()
		e, c := cuda.NewEvent(nil), cuda.NewEvent(nil)
		x.no(e.Record(s))
		arrived, open := x.door("EventQuery", false)
		defer open()
		asked := x.begun(func() error { _, err := e.Query(); return err })
		testgpu.Receive(x.t, arrived)
		x.no(e.Close())
		g, err := s.Capture(func() error {
			err := c.Record(s)
			open()
			x.no(except(testgpu.Receive(x.t, asked), nil, cuda.ErrClosed))
			return err
		})
		x.no(err)
		x.no(errors.Join(g.Close(), c.Close()))
	},
	"a question beside another library's capture": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		defer x.busy(x.t, s)()
		x.no(e.Record(s))
		foreign, api := x.stream(), x.Driver().API()
		handle := foreign.Handle()
		runtime.LockOSThread() // which the strictest mode is about
		defer runtime.UnlockOSThread()
		require.Equal(x.t, driver.Success, api.StreamBeginCapture(handle, driver.CaptureModeGlobal))
		x.done(e)
		x.done(s)
		g, r := api.StreamEndCapture(handle)
		require.Equal(x.t, driver.Success, r, "the question has ended it")
		require.Equal(x.t, driver.Success, api.GraphDestroy(g))
	},
	"calls on a captured stream take turns": func(x *turn) {
		s, o := x.stream(), x.stream()
		g, err := o.Capture(func() error {
			x.no(s.WaitStream(o))
			var others []chan error
			x.behind("LaunchKernel", false, func() error { return x.run(s, time.Microsecond) }, func() {
				for _, stream := range []*cuda.Stream{s, o} {
					others = append(others, x.begun(func() error { return x.run(stream, time.Microsecond) }))
					time.Sleep(3 * time.Millisecond)
					require.Empty(x.t, others[len(others)-1])
				}
			})
			for _, other := range others {
				x.ended(other, nil)
			}
			return o.WaitStream(s)
		})
		x.no(err)
		x.no(g.Close())
	},
	"a call that waits for the end of a capture": func(x *turn) {
		s, e := x.stream(), x.event(nil)
		var record chan error
		x.behind("StreamEndCapture", false, func() error {
			g, err := s.Capture(func() error { return nil })
			return errors.Join(err, g.Close())
		}, func() {
			record = x.begun(func() error { return e.Record(s) })
			time.Sleep(3 * time.Millisecond)
			require.Empty(x.t, record)
		})
		x.ended(record, nil)
		x.no(e.Synchronize()) // it is no part of the capture
	},
	"all goes on when a capture has ended": func(x *turn) {
		s, o, e := x.stream(), x.stream(), x.event(nil)
		x.ended(x.begun(func() error {
			g, err := s.Capture(func() error {
				return errors.Join(e.Record(s), e.Wait(o), s.WaitStream(o))
			})
			return errors.Join(err, g.Close())
		}), nil)
		for _, stream := range []*cuda.Stream{s, o} {
			x.ended(x.begun(func() error {
				return errors.Join(x.run(stream, time.Microsecond), e.Record(stream), e.Synchronize(), stream.Synchronize())
			}), nil)
		}
	},
	"the default stream beside a capture of a blocking one": func(x *turn) {
		s, err := x.NewStream(&cuda.StreamOptions{SyncWithDefault: true})
		x.no(err)
		x.no(x.run(x.DefaultStream(), time.Microsecond))
		g, err := s.Capture(func() error {
			require.ErrorIs(x.t, x.run(x.DefaultStream(), time.Microsecond), cuda.ErrCapturing)
			return x.run(s, time.Microsecond)
		})
		x.no(err)
		x.no(g.Close())
		x.no(x.run(x.DefaultStream(), time.Microsecond))
		x.no(s.Close())
	},
	"a stream that is closed while it is captured": func(x *turn) {
		s, err := x.NewStream(nil)
		x.no(err)
		g, err := s.Capture(func() error { return errors.Join(x.run(s, time.Microsecond), s.Close()) })
		x.no(err)
		n, err := g.Nodes()
		x.no(err)
		require.Equal(x.t, 1, n)
		x.no(g.Close())
		require.Zero(x.t, x.Driver().Stats().Streams)
	},
	"a call on the default stream when a capture of a blocking one begins": func(x *turn) {
		s, err := x.NewStream(&cuda.StreamOptions{SyncWithDefault: true})
		x.no(err)
		var capture chan error
		x.behind("LaunchKernel", false, func() error { return x.run(x.DefaultStream(), time.Microsecond) }, func() {
			capture = x.begun(func() error {
				g, err := s.Capture(func() error { return x.run(s, time.Microsecond) })
				return errors.Join(err, g.Close())
			})
			time.Sleep(3 * time.Millisecond)
			require.Empty(x.t, capture, "the default stream's work would end it")
		})
		x.ended(capture, nil)
		x.no(s.Close())
	},
	"memory that is closed while its home is captured": func(x *turn) {
		s := x.stream()
		m, err := cuda.AllocAsync[uint32](s, 64)
		x.no(err)
		g, err := s.Capture(func() error { return m.Close() })
		x.no(err)
		n, err := g.Nodes()
		x.no(err)
		require.Zero(x.t, n, "the free is no part of the graph")
		x.no(g.Close())
		testgpu.WaitUntil(x.t, func() bool { return x.Driver().Stats().Buffers == 0 })
	},
}
