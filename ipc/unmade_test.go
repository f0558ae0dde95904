package ipc

import (
	"context"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// What is nil, or was made without Listen, Accept, Dial, NewProducer and NewConsumer, is a
// mistake of the user's: each method says so or has nothing to say, and none panics or
// hangs.
func TestUnmade(t *testing.T) {
	for says, all := range map[string][]any{
		"is nil":          {(*Session)(nil), (*Listener)(nil), (*Producer[uint32])(nil), (*Consumer[uint32])(nil)},
		"was not made by": {new(Session), new(Listener), new(Producer[uint32]), new(Consumer[uint32])},
	} {
		for _, x := range all {
			v := reflect.ValueOf(x)
			for i := range v.NumMethod() {
				name := v.Type().String() + "." + v.Type().Method(i).Name
				t.Run(name+" "+says, func(t *testing.T) {
					checkUnmade(t, name, says, calledWithout(t, v.Method(i)))
				})
			}
		}
	}
}

// calledWithout calls f with a context, and nothing else.
func calledWithout(t *testing.T, f reflect.Value) any {
	t.Helper()
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		arg := reflect.Zero(f.Type().In(i))
		if f.Type().In(i) == reflect.TypeFor[context.Context]() {
			arg = reflect.ValueOf(context.Background())
		}
		args = append(args, arg)
	}
	result := make(chan any, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
				result <- nil
			}
		}()
		all := f.Call(args)
		result <- all[len(all)-1].Interface()
	}()
	select {
	case last := <-result:
		return last
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
		return nil
	}
}

func checkUnmade(t *testing.T, name, says string, result any) {
	t.Helper()
	switch x := result.(type) {
	case error:
		require.ErrorIs(t, x, cuda.ErrInvalid)
		require.ErrorContains(t, x, says)
	case <-chan struct{}:
		select {
		case <-x:
		default:
			t.Error("the channel is not closed")
		}
	case net.Addr:
		require.Empty(t, x.String())
	case string:
		require.Equal(t, "ipc.Session(nil)", x)
	case Credentials, *cuda.Device, int:
		require.Zero(t, x)
	case nil:
		require.Contains(t, name, ".Close", "there is nothing to close; all else is an error")
	default:
		t.Errorf("an unexpected %T", x)
	}
}

// The functions that take a session say the same.
func TestFunctionsOfAnUnmadeSession(t *testing.T) {
	drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	ctx := t.Context()
	for says, s := range map[string]*Session{"the session is nil": nil, "the session was not made by Accept or Dial": new(Session)} {
		_, err := Buffer[uint32](ctx, s, drv, "x")
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, says)
		_, err = NewProducer[uint32](ctx, s, d, "r", 1, 1)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, says)
		_, err = NewConsumer[uint32](ctx, s, drv, "r")
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}
