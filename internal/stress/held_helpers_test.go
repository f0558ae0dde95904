package stress_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// held is a device before whose driver callers can be held up, as a scheduler might do.
type held struct {
	*cuda.Device
	hold   atomic.Pointer[func(function string, after bool)]
	module *cuda.Module
	spin   *cuda.Kernel
}

// onHeld runs f on the simulated GPU, and on a real one where there is one. At the end
// nothing may be left, and the driver must not have been misused.
func onHeld(t *testing.T, f func(t *testing.T, b *held)) {
	t.Run("simulated", func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{AllowRaces: true}) // the callers take no care of one another
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(gpu.Problems())
			}
		})
		t.Cleanup(func() {
			if !t.Failed() {
				testgpu.CollectUntil(t, func() bool { return len(gpu.Problems()) == 0 })
			}
		})
		f(t, newHeld(t, gpu.API()))
	})
	t.Run("real", func(t *testing.T) {
		testgpu.NotDetecting(t)
		f(t, newHeld(t, testgpu.RealDriver(t).API()))
	})
}

func newHeld(t *testing.T, bare *driver.API) *held {
	b, api := &held{}, *bare
	b.wrap(&api)
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	b.Device, err = drv.OpenDevice(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			testgpu.WaitUntil(t, func() bool { return drv.Stats() == cuda.Stats{} })
		}
	})
	b.module = testgpu.Kernels(t, b.Device)
	b.spin = testgpu.Kernel(t, b.module, "purecuda_spin")
	t.Cleanup(func() { b.hold.Store(nil) })
	return b
}

// wrap has all calls of the table pass by b.hold, but for those that only concern the
// calling thread.
func (b *held) wrap(api *driver.API) {
	testgpu.Wrap(api, func(function reflect.StructField, _ []reflect.Value, call func() []reflect.Value) []reflect.Value {
		if testgpu.OfThread(function) {
			return call()
		}
		b.pass(function.Name, false)
		results := call()
		b.pass(function.Name, true)
		return results
	})
}

func (b *held) pass(function string, after bool) {
	if hold := b.hold.Load(); hold != nil {
		(*hold)(function, after)
	}
}

// dawdle holds callers up now and then from now on, so that others overtake them.
func (b *held) dawdle() {
	hold := func(_ string, after bool) {
		switch n := rand.IntN(32); {
		case n < 8:
			runtime.Gosched()
		case n < 10 && !after:
			// A sleep may take a millisecond, whatever it is asked for.
			for until := time.Now().Add(time.Duration(rand.IntN(50)) * time.Microsecond); time.Now().Before(until); {
				runtime.Gosched()
			}
		}
	}
	b.hold.Store(&hold)
}

// door stops the next call of a function, before it does anything or before it returns.
func (b *held) door(function string, after bool) (arrived <-chan struct{}, open func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var shut atomic.Bool
	shut.Store(true)
	hold := func(f string, a bool) {
		if f == function && a == after && shut.CompareAndSwap(true, false) {
			close(in)
			<-out
		}
	}
	b.hold.Store(&hold)
	return in, sync.OnceFunc(func() { close(out) })
}

// run gives s work for about that time.
func (b *held) run(s *cuda.Stream, d time.Duration) error {
	return b.spin.Launch(s, cuda.Grid1D(1, 1), uint64(d))
}

// busy keeps s busy until release is called: s waits for a word that the host sets. The
// stream's handle is not taken, which would have the library treat it as others' too.
func (b *held) busy(t testing.TB, s *cuda.Stream) (release func()) {
	t.Helper()
	word, err := cuda.AllocHost[uint32](b.Device, 1, nil)
	require.NoError(t, err)
	p := &word.Slice()[0]
	atomic.StoreUint32(p, 0)
	require.NoError(t, s.WaitValue(word, 1))
	release = sync.OnceFunc(func() { atomic.StoreUint32(p, 1) })
	t.Cleanup(func() { release(); require.NoError(t, word.Close()) })
	return release
}

func (b *held) stream(t testing.TB) *cuda.Stream { return testgpu.NewStream(t, b.Device, nil) }

func (b *held) host(t testing.TB, n int) *cuda.HostBuffer[uint32] {
	m := testgpu.AllocHost[uint32](t, b.Device, n)
	clear(m.Slice())
	return m
}

// part returns n elements of m, from number i*n on.
func part(m *cuda.HostBuffer[uint32], i, n int) *cuda.HostBuffer[uint32] {
	p, err := m.Range(i*n, (i+1)*n)
	if err != nil {
		panic(err)
	}
	return p
}

func set(m *cuda.HostBuffer[uint32], v uint32) {
	for i := range m.Slice() {
		m.Slice()[i] = v
	}
}

// storm has goroutines call f, with the number of the goroutine and of the call, until the
// time is over: half a second, or the seconds in the environment.
func storm(t *testing.T, b *held, goroutines int, f func(r *rand.Rand, g, i int) error) {
	t.Helper()
	d := duration(500 * time.Millisecond)
	b.dawdle()
	var all sync.WaitGroup
	var calls atomic.Int64
	deadline := time.Now().Add(d)
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
			for i := 0; time.Now().Before(deadline) && !t.Failed(); i++ {
				if err := f(r, g, i); err != nil {
					t.Errorf("goroutine %d, call %d: %v", g, i, err)
				}
				calls.Add(1)
			}
		})
	}
	within(t, d+time.Minute/2, all.Wait)
	b.hold.Store(nil)
	t.Logf("%d calls", calls.Load())
}

// within fails the test, with all goroutines' stacks, unless f returns in time. f runs on
// another goroutine, and must not fail the test.
func within(t testing.TB, d time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(d):
		stacks := make([]byte, 1<<20)
		t.Fatalf("did not return; goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// except returns err unless it is one of these.
func except(err error, these ...error) error {
	for _, e := range these {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
