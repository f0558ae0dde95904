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
				good := testgpu.NewObjects(t, drv, d)
				for of, value := range good.Receivers {
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
						err, canFail := good.Call(t, name, on.Method(i), args == "zero")
						if (receiver == "nil" || receiver == "zero" && of != reflect.TypeFor[*cuda.Event]()) && canFail && of.Method(i).Name != "Close" && err == nil {
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
