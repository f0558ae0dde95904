package cuda_test

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
	"github.com/purecuda/cuda/internal/testgpu"
)

// hot is what the calls of the hot path work on.
type hot struct {
	*bench.Fixture
	buf      *cuda.Buffer[uint32]
	pooled   *cuda.Buffer[uint32] // whose home is S
	host     *cuda.HostBuffer[uint32]
	fill     *cuda.Kernel // of 3 arguments
	prepared *cuda.PreparedKernel
	// bare and bareEnd are for the bare functions: see [bench.NewFixture].
	bare    *cuda.Stream
	bareEnd *cuda.Event
}

func newHot(t testing.TB, drv *cuda.Driver) *hot {
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	f, err := bench.NewFixture(d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	h := &hot{Fixture: f, buf: testgpu.Alloc[uint32](t, d, 1), host: testgpu.AllocHost[uint32](t, d, 1), pooled: testgpu.AllocAsync[uint32](t, f.S, 1),
		bare: testgpu.NewStream(t, d, nil), bareEnd: testgpu.NewEvent(t, testgpu.Timed())}
	require.NoError(t, h.bareEnd.Record(h.bare))
	require.NoError(t, h.Other.WaitStream(h.S))
	h.fill = testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_fill")
	h.prepared, err = h.fill.Prepare(h.buf, uint64(1), uint32(1))
	require.NoError(t, err)
	h.drain(t)
	return h
}

// rows are the measured ones, and others that are of use here only.
func (h *hot) rows() []*bench.Row {
	api := h.Dev.Driver().API()
	end, s, fill, params := h.bareEnd.Handle(), h.bare.Handle(), h.fill.Handle(), h.params()
	return append(bench.Rows(),
		extra("query-timing", func() error { _, err := h.End.Query(); return err },
			func() driver.Result { return api.EventQuery(end) }),
		extra("synchronize-done", func() error { return h.End.Synchronize() },
			func() driver.Result { return api.EventSynchronize(end) }),
		extra("copy-on-another-stream", func() error { return cuda.Copy(h.Other, h.pooled, h.host) }, nil),
		extra("copy-on-another-stream-and-join", func() error {
			if err := cuda.Copy(h.Other, h.pooled, h.host); err != nil {
				return err
			}
			return h.S.WaitStream(h.Other)
		}, nil),
		extra("copy-2d", func() error { return cuda.Copy2D(h.S, h.buf, 1, h.host, 1, 1, 1) }, nil),
		extra("fill", func() error { return cuda.Fill(h.S, h.buf, 1) }, nil),
		extra("launch-3-arguments", func() error { return h.prepared.Launch(h.S, testgpu.OneThread) }, func() driver.Result {
			return api.LaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, s, params, nil)
		}),
	)
}

// extra makes a row of functions that do the operation once; table may be nil.
func extra(id string, method func() error, table func() driver.Result) *bench.Row {
	r := &bench.Row{ID: id, Method: func(_ *bench.Fixture, n int) error {
		for range n {
			if err := method(); err != nil {
				return err
			}
		}
		return nil
	}}
	if table != nil {
		r.Table = func(_ *bench.Fixture, n int) driver.Result {
			for range n {
				if r := table(); r != driver.Success {
					return r
				}
			}
			return driver.Success
		}
	}
	return r
}

// params are the arguments of h.prepared as the driver takes them.
func (h *hot) params() unsafe.Pointer {
	args := &struct {
		addresses [3]unsafe.Pointer
		buf, n    uint64
		value     uint32
	}{buf: uint64(h.buf.Pointer()), n: 1, value: 1}
	args.addresses = [3]unsafe.Pointer{unsafe.Pointer(&args.buf), unsafe.Pointer(&args.n), unsafe.Pointer(&args.value)}
	return unsafe.Pointer(&args.addresses)
}

// drain keeps the work of a long benchmark or test from piling up.
func (h *hot) drain(t testing.TB) { require.NoError(t, h.Drain(t.Context())) }

func BenchmarkSimulated(b *testing.B) {
	drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
	require.NoError(b, err)
	benchmark(b, drv)
}

func BenchmarkReal(b *testing.B) { benchmark(b, testgpu.RealDriver(b)) }

func benchmark(b *testing.B, drv *cuda.Driver) {
	h := newHot(b, drv)
	for _, r := range h.rows() {
		b.Run(r.ID+"/method", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Method(h.Fixture, 1); err != nil {
					b.Fatal(err)
				}
			}
			h.drain(b)
		})
		if r.Table == nil {
			continue
		}
		b.Run(r.ID+"/table", func(b *testing.B) {
			b.ReportAllocs()
			_, err := h.Bare(func(int) error { // the context is current meanwhile
				for b.Loop() {
					if r := r.Table(h.Fixture, 1); r != driver.Success {
						return r
					}
				}
				return nil
			})(0)
			require.NoError(b, err)
			h.drain(b)
		})
	}
	b.Run("Launch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := h.fill.Launch(h.S, testgpu.OneThread, h.buf, uint64(1), uint32(1)); err != nil {
				b.Fatal(err)
			}
		}
		h.drain(b)
	})
	b.Run("RecordParallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			s, err := h.Dev.NewStream(nil)
			if err != nil {
				b.Error(err)
				return
			}
			defer s.Close()
			e := cuda.NewEvent(nil)
			defer e.Close()
			for pb.Next() {
				if err := e.Record(s); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	// What docs/design.md rejects: a goroutine that owns a thread and makes all
	// calls on it.
	b.Run("RecordByExecutor", func(b *testing.B) {
		jobs, results := make(chan func() error), make(chan error)
		defer close(jobs)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for job := range jobs {
				results <- job()
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			jobs <- func() error { return h.E.Record(h.S) }
			if err := <-results; err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRealFreeBesideWork shows what freeing memory costs while the device
// works: how long Close takes, and a Record on another stream meanwhile. A kernel
// of 60 ms runs on one stream. The times per operation mean nothing.
func BenchmarkRealFreeBesideWork(b *testing.B) {
	d, err := testgpu.RealDriver(b).OpenDevice(0)
	require.NoError(b, err)
	busy, other := testgpu.NewStream(b, d, nil), testgpu.NewStream(b, d, nil)
	spin := testgpu.Kernel(b, testgpu.Kernels(b, d), "purecuda_spin")
	e := testgpu.NewEvent(b, nil)
	require.NoError(b, e.Record(other))
	for name, alloc := range map[string]func() func() error{
		"AllocAsync": func() func() error {
			return allocFor(b, func() (*cuda.Buffer[byte], error) { return cuda.AllocAsync[byte](other, 4096) })
		},
		"Alloc": func() func() error {
			return allocFor(b, func() (*cuda.Buffer[byte], error) { return cuda.Alloc[byte](d, 4096) })
		},
		"AllocHost": func() func() error {
			return allocFor(b, func() (*cuda.HostBuffer[byte], error) { return cuda.AllocHost[byte](d, 4096, nil) })
		},
	} {
		b.Run(name, func(b *testing.B) {
			var closing, recording time.Duration
			for b.Loop() {
				free := alloc()
				require.NoError(b, d.Synchronize())
				require.NoError(b, spin.Launch(busy, cuda.Grid1D(1, 1), uint64(60*time.Millisecond)))
				closed := make(chan time.Duration)
				go func() {
					begin := time.Now()
					if err := free(); err != nil {
						b.Error(err)
					}
					closed <- time.Since(begin)
				}()
				time.Sleep(5 * time.Millisecond) // Close is in the driver
				begin := time.Now()
				require.NoError(b, e.Record(other))
				recording += time.Since(begin)
				closing += <-closed
			}
			b.ReportMetric(closing.Seconds()*1e3/float64(b.N), "ms/close")
			b.ReportMetric(recording.Seconds()*1e3/float64(b.N), "ms/record")
		})
	}
}

func allocFor[B interface{ Close() error }](b *testing.B, alloc func() (B, error)) func() error {
	buf, err := alloc()
	require.NoError(b, err)
	return buf.Close
}
