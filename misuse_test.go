package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
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
				good := newGoods(t)
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
						err, returned := called(t, name, on.Method(i), good, args == "good")
						if (receiver == "nil" || receiver == "zero" && of != reflect.TypeFor[*cuda.Event]()) && returned && of.Method(i).Name != "Close" && err == nil {
							t.Errorf("%s: no error", name)
						}
					}
				}
			})
		}
	}
}

// A wait for work that goes on says so if the context is nil, and takes nothing along.
func TestNilContext(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	buf, large := testgpu.Alloc[byte](t, b.Device(), 16), testgpu.Alloc[byte](t, b.Device(), 9<<20) // more than goes at once
	for range 20 {                                                                                  // more than may ask at a time
		release := gpu.Hold(s)
		e := recorded(t, s, nil)
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

// goods are things of each kind that are fit for use.
type goods struct {
	receivers, args map[reflect.Type]reflect.Value
}

func newGoods(t *testing.T) goods {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	return goodsOf(t, drv, d)
}

func goodsOf(t *testing.T, drv *cuda.Driver, d *cuda.Device) goods {
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
	all := goods{map[reflect.Type]reflect.Value{}, map[reflect.Type]reflect.Value{}}
	for _, v := range []any{drv, d, s, e, b, h, pool, g, x, m, k, p} {
		all.receivers[reflect.TypeOf(v)] = reflect.ValueOf(v)
		all.args[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	all.args[reflect.TypeFor[context.Context]()] = reflect.ValueOf(context.Background())
	all.args[reflect.TypeFor[func()]()] = reflect.ValueOf(func() {})
	all.args[reflect.TypeFor[func(error)]()] = reflect.ValueOf(func(error) {})
	all.args[reflect.TypeFor[func() error]()] = reflect.ValueOf(func() error { return nil })
	return all
}

// called calls f. The error is that which it returned or sent, if it can.
func called(t *testing.T, name string, f reflect.Value, good goods, fit bool) (err error, returned bool) {
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		in := f.Type().In(i)
		arg, ok := good.args[in]
		if !ok || !fit {
			arg = reflect.Zero(in)
		}
		args = append(args, arg)
	}
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	over := make(chan []reflect.Value, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%s: %v", name, p)
				over <- nil
			}
		}()
		over <- call(args)
	}()
	select {
	case results := <-over:
		if len(results) == 0 {
			return nil, false
		}
		last := results[len(results)-1].Interface()
		if done, ok := last.(<-chan error); ok {
			return testgpu.Receive(t, done), true
		}
		returned = f.Type().Out(len(results)-1) == reflect.TypeFor[error]()
		err, _ = last.(error)
		return err, returned
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: hangs", name)
		return nil, false
	}
}
