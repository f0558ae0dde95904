package rules_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// ends are what the cases below work with.
type ends struct {
	s, other *cuda.Stream
	buf, to  *cuda.Buffer[uint32]
	e        *cuda.Event
	external *cuda.Event
	called   chan error
}

func newEnds(t *testing.T, d *cuda.Device) *ends {
	v := &ends{s: testgpu.NewStream(t, d, nil), other: testgpu.NewStream(t, d, nil), e: testgpu.NewEvent(t, nil), called: make(chan error, 10)}
	v.external = testgpu.NewEvent(t, testgpu.External())
	v.buf, v.to = testgpu.Alloc[uint32](t, d, 16), testgpu.Alloc[uint32](t, d, 16)
	require.NoError(t, v.e.Record(v.other))
	require.NoError(t, v.s.WaitStream(v.other)) // so that the spare events are there
	require.NoError(t, v.other.WaitStream(v.s))
	return v
}

var endsCases = map[string]struct {
	function string // that the call is held in
	inside   string // and in a capture; "" if it is refused there
	call     func(v *ends) error
}{
	"Fill":        {"MemsetD32Async", "MemsetD32Async", func(v *ends) error { return cuda.Fill(v.s, v.buf, 1) }},
	"Copy":        {"MemcpyAsync", "MemcpyAsync", func(v *ends) error { return cuda.Copy(v.s, v.to, v.buf) }},
	"host func":   {"LaunchHostFunc", "LaunchHostFunc", func(v *ends) error { return v.s.LaunchHostFunc(func(err error) { v.called <- err }) }},
	"record":      {"EventRecord", "", func(v *ends) error { return v.e.Record(v.s) }},
	"wait":        {"StreamWaitEvent", "", func(v *ends) error { return v.e.Wait(v.s) }},
	"WaitStream":  {"EventRecord", "", func(v *ends) error { return v.s.WaitStream(v.other) }},
	"joined":      {"EventRecord", "", func(v *ends) error { return v.other.WaitStream(v.s) }},
	"its wait":    {"StreamWaitEvent", "", func(v *ends) error { return v.other.WaitStream(v.s) }},
	"Synchronize": {"EventRecord", "", func(v *ends) error { return v.s.Synchronize() }},
	"Query":       {"StreamQuery", "", func(v *ends) error { _, err := v.s.Query(); return err }},
	"AllocAsync": {"MemAllocFromPoolAsync", "", func(v *ends) error {
		b, err := cuda.AllocAsync[uint32](v.s, 16)
		if err != nil {
			return err
		}
		return b.Close()
	}},
	"external record": {"EventRecord", "EventRecordWithFlags", func(v *ends) error { return v.external.Record(v.s) }},
	"external wait":   {"", "StreamWaitEvent", func(v *ends) error { return v.external.Wait(v.s) }},
}

// heldIn is b with a table in which the next call of each function can be held, on its way
// to the driver or back.
func heldIn(t *testing.T, b *testgpu.Backend) (own *testgpu.Backend, to, back map[string]*testgpu.Hook) {
	to, back = map[string]*testgpu.Hook{}, map[string]*testgpu.Hook{}
	own, _ = testgpu.Counted(t, b, func(api *driver.API) {
		api.Fused = nil
		for _, name := range []string{"MemsetD32Async", "MemcpyAsync", "LaunchHostFunc", "EventRecord", "EventRecordWithFlags",
			"StreamWaitEvent", "StreamQuery", "MemAllocFromPoolAsync"} {
			to[name], back[name] = new(testgpu.Hook), new(testgpu.Hook)
		}
		testgpu.Wrap(api, func(function reflect.StructField, _ []reflect.Value, call func() []reflect.Value) []reflect.Value {
			if to[function.Name] == nil {
				return call()
			}
			to[function.Name].Run()
			results := call()
			back[function.Name].Run()
			return results
		})
	})
	return own, to, back
}

// A capture begins when the calls on its stream are over that others have begun. They are
// not in it, and do not end it.
func TestCallsUnderWayWhenACaptureBegins(t *testing.T) {
	for name, c := range endsCases {
		if c.function == "" {
			continue
		}
		testgpu.Rule(t, "23 under way when a capture begins: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			b, to, _ := heldIn(t, b)
			v := newEnds(t, b.Device())
			if name == "Synchronize" { // else it would just ask whether the stream is idle
				defer testgpu.Hold(t, v.s)()
			}
			in, leave := to[c.function].HoldNext()
			call := testgpu.Go(func() error { return c.call(v) })
			<-in
			begun := make(chan struct{})
			var nodes int
			captured := testgpu.Go(func() error {
				g, err := v.s.Capture(func() error {
					close(begun)
					return cuda.Fill(v.s, v.buf, 2)
				})
				if err != nil {
					return err
				}
				if nodes, err = g.Nodes(); err != nil {
					return err
				}
				return g.Close()
			})
			time.Sleep(testgpu.Soon)
			select {
			case <-begun:
				t.Error("the capture has begun while a call was in the driver")
			default:
			}
			leave()
			require.NoError(t, testgpu.Receive(t, captured))
			require.Equal(t, 1, nodes)
			if name == "Synchronize" {
				return // it goes on
			}
			require.NoError(t, testgpu.Receive(t, call))
			capturing, err := v.other.IsCapturing()
			require.NoError(t, err)
			require.False(t, capturing)
			for _, s := range []*cuda.Stream{v.s, v.other} {
				require.NoError(t, s.Synchronize())
			}
			if name == "host func" {
				require.NoError(t, testgpu.Receive(t, v.called))
			}
		})
	}
}

// A capture ends when the calls on its streams are over. What they have enqueued is in the
// graph, which keeps what it needs.
func TestCallsUnderWayWhenACaptureEnds(t *testing.T) {
	for name, c := range endsCases {
		if c.inside == "" {
			continue
		}
		testgpu.Rule(t, "23 under way when a capture ends: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			b, _, back := heldIn(t, b)
			v := newEnds(t, b.Device())
			var leave func()
			var call <-chan error
			captured := make(chan error, 1)
			var g *cuda.Graph
			inside := make(chan struct{})
			go func() {
				var err error
				g, err = v.s.Capture(func() error {
					var in <-chan struct{}
					in, leave = back[c.inside].HoldNext()
					call = testgpu.Go(func() error { return c.call(v) })
					<-in
					close(inside)
					return nil
				})
				captured <- err
			}()
			<-inside
			time.Sleep(testgpu.Soon)
			require.Empty(t, captured, "the capture has ended while a call was in the driver")
			leave()
			require.NoError(t, testgpu.Receive(t, captured))
			require.NoError(t, testgpu.Receive(t, call))
			nodes, err := g.Nodes()
			require.NoError(t, err)
			require.Equal(t, 1, nodes)
			x, err := g.Instantiate()
			require.NoError(t, err)
			require.NoError(t, g.Close())
			require.NoError(t, v.external.Close())
			require.NoError(t, v.buf.Close())
			require.NoError(t, v.to.Close())
			require.Equal(t, map[string]int{"Fill": 1, "Copy": 2}[name], b.Driver.Stats().Buffers, "that the graph keeps")
			require.Empty(t, v.called)
			for range 2 {
				require.NoError(t, x.Launch(v.s))
				require.NoError(t, v.s.Synchronize())
			}
			if name == "host func" {
				require.NoError(t, testgpu.Receive(t, v.called))
				require.NoError(t, testgpu.Receive(t, v.called))
			}
			require.Empty(t, v.called)
			require.NoError(t, x.Close())
		})
	}
}

// A capture begins when no call on its stream is under way, and ends when none is: so a use
// is in the graph, or before or after it, and never between.
func TestCallsExcludeTheEndsOfACapture(t *testing.T) {
	for name, inside := range map[string]bool{"begin": false, "end": true} {
		testgpu.Rule(t, "23 a use at the "+name+" of a capture", 1, func(t *testing.T, b *testgpu.Backend) {
			var copying testgpu.Hook
			b, _ = testgpu.Counted(t, b, func(api *driver.API) {
				bare := api.MemcpyAsync
				api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
					copying.Run()
					r := bare(dst, src, n, s)
					copying.Run()
					return r
				}
			})
			s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			p.Set(7)
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, s.Synchronize())
			inDriver, leave, copied := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			hold := func() { close(inDriver); <-leave }
			use := func() { copied <- cuda.Copy(s, p.Out, p.Buf) }
			if !inside {
				copying.Next(hold)
				go use()
				<-inDriver
			}
			begun, ended := make(chan struct{}), make(chan *cuda.Graph, 1)
			go func() {
				g, err := s.Capture(func() error {
					close(begun)
					if inside {
						copying.Next(hold)
						go use()
						<-inDriver
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				ended <- g
			}()
			time.Sleep(testgpu.Soon)
			require.Empty(t, ended)
			if !inside {
				select {
				case <-begun:
					t.Error("the capture has begun while a call was in the driver")
				default:
				}
			}
			close(leave)
			g := <-ended
			require.NoError(t, <-copied)
			n, err := g.Nodes()
			require.NoError(t, err)
			require.Equal(t, map[bool]int{false: 0, true: 1}[inside], n)
			require.NoError(t, g.Close())
			require.NoError(t, s.Synchronize())
			p.Require(t, map[bool]uint32{false: 7, true: 0}[inside])
		})
	}
}
