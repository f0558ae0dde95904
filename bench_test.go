package cuda_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// hot is what the calls of the hot path work on.
type hot struct {
	dev           *cuda.Device
	s, other      *cuda.Stream
	e, start, end *cuda.Event
	ctx           context.Context
	buf           *cuda.Buffer[uint32]
	pooled        *cuda.Buffer[uint32] // whose home is s
	host          *cuda.HostBuffer[uint32]
	fill          *cuda.Kernel // of 3 arguments
	prepared      *cuda.PreparedKernel
	graph         *cuda.GraphExec // of one copy
}

func newHot(t testing.TB, drv *cuda.Driver) *hot {
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	h := &hot{dev: d, s: newStream(t, d, nil), other: newStream(t, d, nil),
		e: newEvent(t, nil), start: newEvent(t, timed()), end: newEvent(t, timed()),
		buf: alloc[uint32](t, d, 1), host: allocHost[uint32](t, d, 1)}
	h.pooled = allocAsync[uint32](t, h.s, 1)
	require.NoError(t, h.other.WaitStream(h.s))
	h.fill = kernel(t, ours(t, d), "purecuda_fill")
	h.prepared, err = h.fill.Prepare(h.buf, uint64(1), uint32(1))
	require.NoError(t, err)
	h.graph = instantiate(t, capture(t, h.s, func() { require.NoError(t, cuda.Copy(h.s, h.buf, h.host)) }))
	require.NoError(t, h.e.Record(h.s))
	require.NoError(t, h.start.Record(h.s))
	require.NoError(t, h.end.Record(h.s))
	require.NoError(t, h.s.Synchronize())
	h.ctx = cuda.WithStream(context.WithoutCancel(t.Context()), h.s)
	return h
}

// calls are the public methods of the hot path, and the bare driver calls
// below them. Each must return nil or Success.
func (h *hot) calls() []call {
	api := h.dev.Driver().API()
	s, other, e := h.s.Handle(), h.other.Handle(), h.e.Handle()
	start, end := h.start.Handle(), h.end.Handle()
	f, params := h.fill.Handle(), h.params()
	x := h.graph.Handle()
	return []call{
		{"Record", func() error { return h.e.Record(h.s) }, func() driver.Result { return api.EventRecord(e, s) }},
		{"RecordTiming", func() error { return h.start.Record(h.s) }, func() driver.Result { return api.EventRecord(start, s) }},
		{"RecordDefaultStream", func() error { return h.e.Record(h.dev.DefaultStream()) }, nil},
		{"Wait", func() error { return h.e.Wait(h.other) }, func() driver.Result { return api.StreamWaitEvent(other, e, 0) }},
		{"WaitStream", func() error { return h.other.WaitStream(h.s) }, func() driver.Result {
			if r := api.EventRecord(e, s); r != driver.Success {
				return r
			}
			return api.StreamWaitEvent(other, e, 0)
		}},
		{"Query", func() error { _, err := h.e.Query(); return err }, nil},
		{"StreamQuery", func() error { _, err := h.s.Query(); return err }, nil},
		{"QueryDone", func() error { _, err := h.end.Query(); return err }, func() driver.Result { return api.EventQuery(end) }},
		{"SynchronizeDone", func() error { return h.end.Synchronize() }, func() driver.Result { return api.EventSynchronize(end) }},
		{"RecordSynchronize", func() error {
			if err := h.e.Record(h.s); err != nil {
				return err
			}
			return h.e.Synchronize()
		}, func() driver.Result {
			if r := api.EventRecord(e, s); r != driver.Success {
				return r
			}
			return api.EventSynchronize(e)
		}},
		{"StreamSynchronizeIdle", func() error { return h.s.Synchronize() }, func() driver.Result { return api.StreamSynchronize(s) }},
		{"ElapsedTime", func() error { _, err := h.end.ElapsedTime(h.end); return err },
			func() driver.Result { _, r := api.EventElapsedTime(end, end); return r }},
		{"CurrentStream", func() error { h.dev.CurrentStream(h.ctx); return nil }, nil},
		{"Copy4Bytes", func() error { return cuda.Copy(h.s, h.buf, h.host) }, nil},
		{"CopyOnAnotherStream", func() error { return cuda.Copy(h.other, h.pooled, h.host) }, nil},
		{"CopyOnAnotherStreamAndJoin", func() error {
			if err := cuda.Copy(h.other, h.pooled, h.host); err != nil {
				return err
			}
			return h.s.WaitStream(h.other)
		}, nil},
		{"Copy2D", func() error { return cuda.Copy2D(h.s, h.buf, 1, h.host, 1, 1, 1) }, nil},
		{"Fill", func() error { return cuda.Fill(h.s, h.buf, 1) }, nil},
		{"LaunchPrepared", func() error { return h.prepared.Launch(h.s, one) }, func() driver.Result {
			return api.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, nil)
		}},
		{"LaunchGraph", func() error { return h.graph.Launch(h.s) }, func() driver.Result { return api.GraphLaunch(x, s) }},
	}
}

type call struct {
	name   string
	method func() error
	table  func() driver.Result // the same by the table, or nil
}

// drain keeps the work of a long benchmark or test from piling up.
func (h *hot) drain(t testing.TB) {
	require.NoError(t, h.s.Synchronize())
	require.NoError(t, h.other.Synchronize())
}

func BenchmarkSimulated(b *testing.B) {
	drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
	require.NoError(b, err)
	benchmark(b, drv)
}

func BenchmarkReal(b *testing.B) { benchmark(b, realDriver(b)) }

func benchmark(b *testing.B, drv *cuda.Driver) {
	h := newHot(b, drv)
	for _, c := range h.calls() {
		b.Run(c.name+"/method", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.method(); err != nil {
					b.Fatal(err)
				}
			}
			h.drain(b)
		})
		if c.table == nil {
			continue
		}
		b.Run(c.name+"/table", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r := c.table(); r != driver.Success {
					b.Fatal(r)
				}
			}
			h.drain(b)
		})
	}
	b.Run("Launch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := h.fill.Launch(h.s, one, h.buf, uint64(1), uint32(1)); err != nil {
				b.Fatal(err)
			}
		}
		h.drain(b)
	})
	b.Run("RecordParallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			s, err := h.dev.NewStream(nil)
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
			jobs <- func() error { return h.e.Record(h.s) }
			if err := <-results; err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AllocAsyncClose", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, err := cuda.AllocAsync[uint32](h.s, 1024)
			if err != nil {
				b.Fatal(err)
			}
			if err := buf.Close(); err != nil {
				b.Fatal(err)
			}
		}
		h.drain(b)
	})
	b.Run("NewEventRecordClose", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e, err := h.s.RecordEvent(nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		}
		h.drain(b)
	})
	b.Run("NewStreamClose", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := h.dev.NewStream(nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
