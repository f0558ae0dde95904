package rules_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestHostFuncRules(t *testing.T) {
	testgpu.Rule(t, "01 a host function is called once, in its turn", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, s := range []*cuda.Stream{testgpu.NewStream(t, b.Device(), nil), b.Device().DefaultStream()} {
			p := testgpu.NewPipe(t, b.Device())
			p.Set(1)
			release := testgpu.Hold(t, s)
			var calls atomic.Int32
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, cuda.Copy(s, p.Out, p.Buf))
			require.NoError(t, s.LaunchHostFunc(func(err error) {
				if err != nil || p.Out.Slice()[999] != 1 {
					t.Errorf("called with %v, before the work was done", err)
				}
				for i := range p.In.Slice() {
					p.In.Slice()[i] = 2 // what is behind waits for this
				}
				time.Sleep(time.Millisecond)
				p.In.Slice()[500] = 3
				calls.Add(1)
			}))
			p2 := &testgpu.Pipe{In: p.In, Out: testgpu.AllocHost[uint32](t, b.Device(), 1000), Buf: p.Buf}
			p2.Enqueue(t, s)
			time.Sleep(testgpu.Soon)
			require.Zero(t, calls.Load(), "the stream is held")
			release()
			require.NoError(t, s.Synchronize())
			require.Equal(t, int32(1), calls.Load())
			require.Equal(t, []uint32{2, 3, 2}, p2.Out.Slice()[499:502])
		}
	})

	testgpu.Rule(t, "01 no host function is lost", 1, func(t *testing.T, b *testgpu.Backend) {
		streams := []*cuda.Stream{testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)}
		const n = 10_000
		var calls [2][]int
		var wg sync.WaitGroup
		for i, s := range streams {
			wg.Go(func() {
				for k := range n / len(streams) {
					err := s.LaunchHostFunc(func(err error) {
						if err != nil {
							t.Error(err)
						}
						calls[i] = append(calls[i], k) // the functions of a stream are ordered
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for i, s := range streams {
			require.NoError(t, s.Synchronize())
			require.Len(t, calls[i], n/len(streams))
			for k, got := range calls[i] {
				require.Equal(t, k, got)
			}
		}
	})

	testgpu.Rule(t, "01 a panic in a host function is reported and stops nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		failures := make(chan error, 2)
		b.Driver.OnCleanupError(func(err error) { failures <- err })
		defer b.Driver.OnCleanupError(nil)
		require.NoError(t, s.LaunchHostFunc(func(error) { panic("boom 42") }))
		var nothing map[string]int
		require.NoError(t, s.LaunchHostFunc(func(error) { nothing["x"] = 1 }))
		called := make(chan error, 1)
		require.NoError(t, s.LaunchHostFunc(func(err error) { called <- err }))
		require.NoError(t, s.Synchronize())
		require.NoError(t, <-called)
		err := <-failures
		require.ErrorContains(t, err, "host function")
		require.ErrorContains(t, err, "boom 42")
		require.ErrorContains(t, err, "host_func_test.go", "the panicking goroutine's stack")
		require.ErrorContains(t, <-failures, "nil map")
	})

	testgpu.Rule(t, "01 a host function in a graph is called once for each launch", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		var calls atomic.Int32
		g, err := s.Capture(func() error {
			return s.LaunchHostFunc(func(err error) {
				if err != nil {
					t.Error(err)
				}
				calls.Add(1)
			})
		})
		require.NoError(t, err)
		n, err := g.Nodes()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		x, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, s.Synchronize())
		require.Zero(t, calls.Load())
		for k := range int32(5) {
			require.NoError(t, x.Launch(s))
			require.NoError(t, s.Synchronize())
			require.Equal(t, k+1, calls.Load())
		}
		release := testgpu.Hold(t, s)
		for range 10 {
			require.NoError(t, x.Launch(s))
			require.NoError(t, x.Launch(other))
		}
		require.NoError(t, g.Close())
		require.NoError(t, x.Close(), "with launches in flight")
		time.Sleep(testgpu.Soon)
		require.Equal(t, int32(5), calls.Load())
		release()
		require.NoError(t, s.Synchronize())
		require.NoError(t, other.Synchronize())
		require.Equal(t, int32(25), calls.Load())
	})

	testgpu.Rule(t, "23 an update changes the host functions of later launches", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		var first, second atomic.Int32
		made := func(n *atomic.Int32) *cuda.Graph {
			return testgpu.Capture(t, s, func() { require.NoError(t, s.LaunchHostFunc(func(error) { n.Add(1) })) })
		}
		one, two := made(&first), made(&second)
		x := testgpu.Instantiate(t, one)
		require.NoError(t, one.Close())
		release := testgpu.Hold(t, s)
		require.NoError(t, x.Launch(s))
		require.NoError(t, x.Update(two))
		require.NoError(t, x.Launch(s))
		require.NoError(t, x.Launch(s))
		release()
		require.NoError(t, s.Synchronize())
		require.Equal(t, int32(1), first.Load())
		require.Equal(t, int32(2), second.Load())
	})

	testgpu.Rule(t, "01 a host function may ask and record", 1, func(t *testing.T, b *testgpu.Backend) {
		s, other := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(other))
		require.NoError(t, other.Synchronize())
		type answers struct{ query, stream, record error }
		got := make(chan answers, 1)
		require.NoError(t, s.LaunchHostFunc(func(error) {
			var a answers
			_, a.query = e.Query()
			_, a.stream = other.Query()
			a.record = e.Record(other)
			got <- a
		}))
		require.NoError(t, s.Synchronize())
		a := <-got
		require.NoError(t, errors.Join(a.query, a.stream, a.record))
	})

	testgpu.Rule(t, "24 host functions that cannot be are refused", 1, func(t *testing.T, b *testgpu.Backend) {
		never := func(error) { t.Error("called") }
		s, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.ErrorIs(t, s.LaunchHostFunc(nil), cuda.ErrInvalid)
		require.ErrorIs(t, (*cuda.Stream)(nil).LaunchHostFunc(never), cuda.ErrInvalid)

		api := b.Driver.API() // a capture that the library does not know
		require.Equal(t, driver.Success, api.StreamBeginCapture(s.Handle(), driver.CaptureModeRelaxed))
		require.ErrorIs(t, s.LaunchHostFunc(never), cuda.ErrCapturing)
		g, r := api.StreamEndCapture(s.Handle())
		require.Equal(t, driver.Success, r)
		require.Equal(t, driver.Success, api.GraphDestroy(g))

		require.NoError(t, s.Close())
		require.ErrorIs(t, s.LaunchHostFunc(never), cuda.ErrClosed)
		time.Sleep(2 * testgpu.Soon)
	})

	testgpu.Rule(t, "24 a stream closed under a host function that has not been called", 1, func(t *testing.T, b *testgpu.Backend) {
		s, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
		called := make(chan error, 1)
		require.NoError(t, s.LaunchHostFunc(func(err error) { called <- err }))
		require.NoError(t, s.Close())
		release()
		require.NoError(t, <-called)
	})
}
