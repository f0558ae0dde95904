package testgpu

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// Objects are one object of each type of package cuda, and arguments for their methods, by
// type.
type Objects struct {
	Receivers, Args map[reflect.Type]reflect.Value
}

// NewObjects makes objects that belong together and are fit for use. The caller closes them.
func NewObjects(t testing.TB, drv *cuda.Driver, d *cuda.Device) *Objects {
	t.Helper()
	s := NewStream(t, d, nil)
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
	m := Kernels(t, d)
	k := Kernel(t, m, "purecuda_spin")
	p, err := k.Prepare(uint64(1))
	require.NoError(t, err)
	e := cuda.NewEvent(&cuda.EventOptions{Timing: true})
	require.NoError(t, e.Record(s))
	o := &Objects{map[reflect.Type]reflect.Value{}, map[reflect.Type]reflect.Value{}}
	for _, v := range []any{drv, d, s, e, b, h, pool, g, x, m, k, p} {
		o.Receivers[reflect.TypeOf(v)] = reflect.ValueOf(v)
		o.Args[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	o.Args[reflect.TypeFor[context.Context]()] = reflect.ValueOf(context.Background())
	o.Args[reflect.TypeFor[func()]()] = reflect.ValueOf(func() {})
	o.Args[reflect.TypeFor[func(error)]()] = reflect.ValueOf(func(error) {})
	o.Args[reflect.TypeFor[func() error]()] = reflect.ValueOf(func() error { return nil })
	return o
}

// Call calls a method with o's arguments, or with zero values. The test fails if it panics
// or does not return. err is what the method returned or sent, if it can fail.
func (o *Objects) Call(t testing.TB, name string, method reflect.Value, zero bool) (err error, canFail bool) {
	t.Helper()
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		in := method.Type().In(i)
		arg, ok := o.Args[in]
		if !ok || zero {
			arg = reflect.Zero(in)
		}
		args = append(args, arg)
	}
	call := method.Call
	if method.Type().IsVariadic() {
		call = method.CallSlice
	}
	var results []reflect.Value
	Returns(t, func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%s: %v", name, p)
			}
		}()
		results = call(args)
	})
	if len(results) == 0 {
		return nil, false
	}
	last := results[len(results)-1].Interface()
	if done, ok := last.(<-chan error); ok {
		return Receive(t, done), true
	}
	err, _ = last.(error)
	return err, method.Type().Out(len(results)-1) == reflect.TypeFor[error]()
}

// StreamCalls calls every method of s that can fail, with an event and another stream, and
// returns the errors.
func StreamCalls(s *cuda.Stream, e *cuda.Event, other *cuda.Stream) map[string]error {
	errs := map[string]error{}
	_, errs["Query"] = s.Query()
	_, errs["Priority"] = s.Priority()
	_, errs["IsCapturing"] = s.IsCapturing()
	_, errs["RecordEvent"] = s.RecordEvent(e)
	errs["WaitEvent"] = s.WaitEvent(e)
	errs["WaitStream"] = s.WaitStream(other)
	errs["Synchronize"] = s.Synchronize()
	if other != nil {
		errs["WaitStream, as the other"] = other.WaitStream(s)
		errs["SynchronizeContext"] = s.SynchronizeContext(context.Background())
	}
	return errs
}

// RandomFloats returns pinned memory with numbers between -1 and 1.
func RandomFloats(t testing.TB, d *cuda.Device, n int) *cuda.HostBuffer[float32] {
	t.Helper()
	b := AllocHost[float32](t, d, n)
	for i := range b.Slice() {
		b.Slice()[i] = 2*rand.Float32() - 1
	}
	return b
}
