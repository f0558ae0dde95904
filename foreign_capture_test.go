package cuda_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// notTried are methods that wait for all streams of a device, and so for one that another
// library captures; and those that make something, which are tried by hand.
var notTried = map[string]bool{"Device.Synchronize": true, "Device.SynchronizeContext": true, "Device.Done": true,
	"Device.NewStream": true, "Stream.Capture": true, "Graph.Instantiate": true}

// No method ends a capture that another library has begun in its strictest mode, on another
// thread and on a stream that the method has nothing to do with.
func TestNoMethodEndsACaptureOfOthers(t *testing.T) {
	testgpu.Rule(t, "23 every method beside a capture of others", 1, func(t *testing.T, b *testgpu.Backend) {
		good := goodsOf(t, b.Driver, b.Device())
		captured := testgpu.NewStream(t, b.Device(), nil)
		try := func(name string, f func() error) {
			t.Helper()
			begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				ended <- testgpu.CaptureElsewhere(captured, driver.CaptureModeGlobal, func() error {
					close(begun)
					<-end
					return nil
				})
			}()
			<-begun
			err := f()
			close(end)
			require.NoError(t, <-ended, "%s (%v)", name, err)
		}
		var closing []func() error
		for of, on := range good.receivers {
			for i := range of.NumMethod() {
				name := fmt.Sprintf("%s.%s", of.Elem().Name(), of.Method(i).Name)
				switch {
				case notTried[name]:
				case of.Method(i).Name == "Close":
					closing = append(closing, func() error { return on.Interface().(interface{ Close() error }).Close() })
				default:
					try(name, func() error { err, _ := called(t, name, on.Method(i), good, true); return err })
				}
			}
		}
		get := func(v any) reflect.Value { return good.receivers[reflect.TypeOf(v)] }
		s := get((*cuda.Stream)(nil)).Interface().(*cuda.Stream)
		buf := get((*cuda.Buffer[uint32])(nil)).Interface().(*cuda.Buffer[uint32])
		host := get((*cuda.HostBuffer[uint32])(nil)).Interface().(*cuda.HostBuffer[uint32])
		e := get((*cuda.Event)(nil)).Interface().(*cuda.Event)
		pinned := make([]uint32, 1024)
		for name, f := range map[string]func() error{
			"Alloc":     func() error { b, err := cuda.Alloc[uint32](b.Device(), 4); return closed(b, err) },
			"AllocHost": func() error { b, err := cuda.AllocHost[uint32](b.Device(), 4, nil); return closed(b, err) },
			"AllocAsync": func() error {
				b, err := cuda.AllocAsync[uint32](s, 4)
				if err == nil {
					err = cuda.Fill(s, b, 1)
				}
				return closed(b, err)
			},
			"RegisterHost":  func() error { b, err := cuda.RegisterHost(b.Device(), pinned); return closed(b, err) },
			"Fill":          func() error { return cuda.Fill(s, buf, 1) },
			"Copy":          func() error { return cuda.Copy(s, buf, host) },
			"Copy2D":        func() error { return cuda.Copy2D(s, buf, 2, host, 2, 2, 2) },
			"CopyFromSlice": func() error { return cuda.CopyFromSlice(t.Context(), s, buf, make([]uint32, 4)) },
			"CopyToSlice":   func() error { return cuda.CopyToSlice(t.Context(), s, make([]uint32, 4), buf) },
			"WaitAll":       func() error { return cuda.WaitAll(t.Context(), s, e) },
			"WaitAny":       func() error { _, err := cuda.WaitAny(t.Context(), s, e); return err },
			"new event": func() error {
				e := cuda.NewEvent(&cuda.EventOptions{Timing: true, Blocking: true})
				if err := e.Record(s); err != nil {
					return err
				}
				if err := e.Synchronize(); err != nil {
					return err
				}
				if _, err := e.ElapsedTime(e); err != nil {
					return err
				}
				return e.Close()
			},
			"NewStream": func() error {
				s, err := b.Device().NewStream(nil)
				if err != nil {
					return err
				}
				return s.Close()
			},
			"Instantiate": func() error {
				g, err := s.Capture(func() error { return cuda.Fill(s, buf, 1) })
				if err != nil {
					return err
				}
				x, err := g.Instantiate()
				if err != nil {
					return err
				}
				for _, f := range []func() error{func() error { return x.Launch(s) }, func() error { return x.Update(g) }, x.Close, g.Close} {
					if err := f(); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			try(name, func() error {
				err := f()
				require.NoError(t, err, name)
				return err
			})
		}
		for _, f := range closing {
			try("Close", func() error {
				err := f()
				require.NoError(t, err)
				return err
			})
		}
	})
}

func closed(c interface{ Close() error }, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}

// Memory that was used on a stream before another library began to capture it can be closed:
// nothing is put into the graph, and the memory is given back afterwards.
func TestClosingMemoryOfAStreamThatOthersCapture(t *testing.T) {
	for name, wrap := range map[string]bool{"made here": false, "adopted": true} {
		for mode := range testgpu.CaptureModes {
			testgpu.Rule(t, "29 memory used on a stream "+name+" that others capture, "+mode, 1, func(t *testing.T, b *testgpu.Backend) {
				d := b.Device()
				home, theirs := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
				user := theirs
				if wrap {
					var err error
					user, err = d.ExternalStream(theirs.Handle())
					require.NoError(t, err)
				}
				buf, within := testgpu.AllocAsync[uint32](t, home, 16), testgpu.AllocAsync[uint32](t, home, 16)
				own := testgpu.AllocAsync[uint32](t, theirs, 16)
				plain, pinned := testgpu.Alloc[uint32](t, d, 16), testgpu.AllocHost[uint32](t, d, 16)
				pool, err := d.MemoryPool()
				require.NoError(t, err)
				require.NoError(t, user.WaitStream(home))
				theirs.Handle()
				require.NoError(t, cuda.Copy(user, buf, pinned))
				require.NoError(t, cuda.Fill(user, plain, 1))
				nodes, err := testgpu.NodesElsewhere(theirs, testgpu.CaptureModes[mode], func() error {
					require.NoError(t, cuda.Fill(user, within, 1))
					for _, c := range []interface{ Close() error }{buf, within, own, plain, pinned} {
						require.NoError(t, c.Close())
					}
					require.NoError(t, pool.Trim(0))
					return nil
				})
				require.NoError(t, err)
				require.EqualValues(t, 1, nodes, "the fill alone")
				testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Buffers == 0 })
				require.NoError(t, home.Synchronize())
				require.NoError(t, theirs.Synchronize())
				if wrap {
					require.NoError(t, user.Close())
				}
			})
		}
	}
}
