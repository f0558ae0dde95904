package native_test

import (
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// heldDevice is a simulated device before whose driver calls can be held up.
type heldDevice struct {
	*cuda.Device
	gpu  *cudatest.GPU
	hold atomic.Pointer[func(function string, after bool, args []reflect.Value)]
}

func newHeldDevice(t testing.TB, c cudatest.Config) *heldDevice {
	t.Helper()
	b := &heldDevice{gpu: cudatest.New(c)}
	api := *b.gpu.API()
	testgpu.Wrap(&api, func(function reflect.StructField, args []reflect.Value, call func() []reflect.Value) []reflect.Value {
		if testgpu.OfThread(function) {
			return call()
		}
		b.pass(function.Name, false, args)
		results := call()
		b.pass(function.Name, true, args)
		return results
	})
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	b.Device, err = drv.OpenDevice(0)
	require.NoError(t, err)
	t.Cleanup(func() { b.hold.Store(nil) })
	return b
}

func (b *heldDevice) pass(function string, after bool, args []reflect.Value) {
	if hold := b.hold.Load(); hold != nil {
		(*hold)(function, after, args)
	}
}

// holdNext holds up the next call of a function, before it does anything or before it returns.
func (b *heldDevice) holdNext(function string, after bool) (arrived <-chan struct{}, open func()) {
	return b.holdNextOf(function, after, func([]reflect.Value) bool { return true })
}

func (b *heldDevice) holdNextOf(function string, after bool, of func(args []reflect.Value) bool) (arrived <-chan struct{}, open func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var shut atomic.Bool
	shut.Store(true)
	hold := func(f string, a bool, args []reflect.Value) {
		if f == function && a == after && of(args) && shut.CompareAndSwap(true, false) {
			close(in)
			<-out
		}
	}
	b.hold.Store(&hold)
	return in, sync.OnceFunc(func() { close(out) })
}

func (b *heldDevice) stream(t testing.TB) *cuda.Stream {
	t.Helper()
	s, err := b.NewStream(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// calledBy reports whether a function of that name is on the caller's stack.
func calledBy(name string) bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

// tight is a device with room for one buffer of most bytes.
var tight = cudatest.Config{Memory: 64 << 20}

const most = 40 << 20

// used returns memory of home that user has used.
func (b *heldDevice) used(t testing.TB, home, user *cuda.Stream, n int) *cuda.Buffer[byte] {
	t.Helper()
	m, err := cuda.AllocAsync[byte](home, n)
	require.NoError(t, err)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, cuda.Fill(user, m, 1))
	return m
}
