package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Whatever a method is called on and with, it does not panic or hang. On what was never
// made it fails, unless there is nothing to say.
func TestNoMisusePanics(t *testing.T) {
	for _, receiver := range []string{"nil", "zero", "closed", "good"} {
		for _, args := range []string{"zero", "good"} {
			if receiver == "good" && args == "good" {
				continue
			}
			t.Run(receiver+" on "+args, func(t *testing.T) {
				drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{}).API()) // leaks are not looked for
				require.NoError(t, err)
				d, err := drv.OpenDevice(0)
				require.NoError(t, err)
				good := newObjects(t, drv, d)
				for of, value := range good.receivers {
					on := value
					switch receiver {
					case "nil":
						on = reflect.Zero(of)
					case "zero":
						on = reflect.New(of.Elem())
					case "closed":
						if c, ok := value.Interface().(interface{ Close() error }); ok {
							require.NoError(t, c.Close())
						}
					}
					for i := range of.NumMethod() {
						name := fmt.Sprintf("%v.%s", of, of.Method(i).Name)
						err, canFail := good.call(t, name, on.Method(i), args == "zero")
						if (receiver == "nil" || receiver == "zero" && of != reflect.TypeFor[*cuda.Event]()) && canFail && of.Method(i).Name != "Close" && err == nil {
							t.Errorf("%s: no error", name)
						}
					}
				}
			})
		}
	}
}

// A wait for work that goes on says so if the context is nil, and leaves nothing behind.
func TestNilContext(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	buf, large := testgpu.Alloc[byte](t, b.Device(), 16), testgpu.Alloc[byte](t, b.Device(), 9<<20) // more than goes at once
	for range 20 {                                                                                  // more than may ask at a time
		release := gpu.Hold(s)
		e := testgpu.NewRecordedEvent(t, s, nil)
		var none context.Context
		for name, err := range map[string]error{
			"event":  e.SynchronizeContext(none),
			"stream": s.SynchronizeContext(none),
			"device": b.Device().SynchronizeContext(none),
			"all":    cuda.WaitAll(none, e, s),
			"from":   cuda.CopyFromSlice(none, s, large, make([]byte, large.Len())),
			"to":     cuda.CopyToSlice(none, s, make([]byte, buf.Len()), buf),
		} {
			if !errors.Is(err, cuda.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		release()
		require.NoError(t, e.SynchronizeContext(context.Background()))
		require.NoError(t, e.Close())
	}
}

// notTried are methods that wait for all streams of a device, and so for one that another
// library captures; and those that make something, which are tried by hand.
var notTried = map[string]bool{"Device.Synchronize": true, "Device.SynchronizeContext": true, "Device.Done": true,
	"Device.NewStream": true, "Stream.Capture": true, "Graph.Instantiate": true}

// No method ends a capture that another library has begun in its strictest mode, on another
// thread and on a stream that the method has nothing to do with.
func TestNoMethodEndsACaptureOfOthers(t *testing.T) {
	testgpu.Rule(t, "23 every method beside a capture of others", 1, func(t *testing.T, b *testgpu.Backend) {
		good := newObjects(t, b.Driver, b.Device())
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
					try(name, func() error { err, _ := good.call(t, name, on.Method(i), false); return err })
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

// objects are one object of each type of package cuda, and arguments for their methods, by
// type.
type objects struct {
	receivers, args map[reflect.Type]reflect.Value
}

// newObjects makes objects that belong together and are fit for use. The caller closes them.
func newObjects(t testing.TB, drv *cuda.Driver, d *cuda.Device) *objects {
	t.Helper()
	s := testgpu.NewStream(t, d, nil)
	b, err := cuda.Alloc[uint32](d, 4)
	require.NoError(t, err)
	h, err := cuda.AllocHost[uint32](d, 4, nil)
	require.NoError(t, err)
	pool, err := d.MemoryPool()
	require.NoError(t, err)
	g, err := s.Capture(func() error { return cuda.Fill(s, b, 1) })
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)
	m := testgpu.Kernels(t, d)
	k := testgpu.Kernel(t, m, "purecuda_spin")
	p, err := k.Prepare(uint64(1))
	require.NoError(t, err)
	e := cuda.NewEvent(&cuda.EventOptions{Timing: true})
	require.NoError(t, e.Record(s))
	o := &objects{map[reflect.Type]reflect.Value{}, map[reflect.Type]reflect.Value{}}
	for _, v := range []any{drv, d, s, e, b, h, pool, g, x, m, k, p} {
		o.receivers[reflect.TypeOf(v)] = reflect.ValueOf(v)
		o.args[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	o.args[reflect.TypeFor[context.Context]()] = reflect.ValueOf(context.Background())
	o.args[reflect.TypeFor[func()]()] = reflect.ValueOf(func() {})
	o.args[reflect.TypeFor[func(error)]()] = reflect.ValueOf(func(error) {})
	o.args[reflect.TypeFor[func() error]()] = reflect.ValueOf(func() error { return nil })
	return o
}

// call calls a method with o's arguments, or with zero values. The test fails if it panics
// or does not return. err is what the method returned or sent, if it can fail.
func (o *objects) call(t testing.TB, name string, method reflect.Value, zero bool) (err error, canFail bool) {
	t.Helper()
	var in []reflect.Value
	for i := range method.Type().NumIn() {
		of := method.Type().In(i)
		arg, ok := o.args[of]
		if !ok || zero {
			arg = reflect.Zero(of)
		}
		in = append(in, arg)
	}
	call := method.Call
	if method.Type().IsVariadic() {
		call = method.CallSlice
	}
	var results []reflect.Value
	testgpu.Returns(t, func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%s: %v", name, p)
			}
		}()
		results = call(in)
	})
	if len(results) == 0 {
		return nil, false
	}
	last := results[len(results)-1].Interface()
	if done, ok := last.(<-chan error); ok {
		return testgpu.Receive(t, done), true
	}
	err, _ = last.(error)
	return err, method.Type().Out(len(results)-1) == reflect.TypeFor[error]()
}
