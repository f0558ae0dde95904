package stress_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Goroutines record, wait, query, copy, launch, close and capture at random, on streams and
// events that they share. Nothing crashes, leaks or is lost.
func TestCapturesOnSharedStreams(t *testing.T) {
	skipShort(t)
	testgpu.RuleWithRaces(t, "23 everything on captured streams at once", 1, func(t *testing.T, b *testgpu.Backend) {
		const workers, size = 16, 256
		d := b.Device()
		spin := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_spin")
		var streams [6]*cuda.Stream
		for i := range streams {
			streams[i] = testgpu.NewStream(t, d, &cuda.StreamOptions{SyncWithDefault: i == 5})
		}
		var events [8]atomic.Pointer[cuda.Event]
		for i := range events {
			events[i].Store(cuda.NewEvent(nil))
		}
		allowed := []error{nil, cuda.ErrClosed, cuda.ErrCaptured, cuda.ErrCapturing, context.DeadlineExceeded, driver.ErrorStreamCaptureUnjoined}
		fine := func(what string, err error) {
			for _, e := range allowed {
				if errors.Is(err, e) {
					return
				}
			}
			t.Errorf("%s: %v", what, err)
		}
		deadline := time.Now().Add(duration(500 * time.Millisecond))
		var all sync.WaitGroup
		var captures, checked atomic.Int64
		for w := range workers {
			own := testgpu.NewStream(t, d, nil) // on which nobody else works
			in, out := testgpu.AllocHost[uint32](t, d, size), testgpu.AllocHost[uint32](t, d, size)
			shared, sink := testgpu.Alloc[uint32](t, d, size), testgpu.Alloc[uint32](t, d, size)
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 1))
				for n := uint32(1); time.Now().Before(deadline) && !t.Failed(); n++ {
					s, other := streams[r.IntN(len(streams))], streams[r.IntN(len(streams))]
					e := events[r.IntN(len(events))].Load()
					switch r.IntN(14) {
					case 0, 1:
						fine("record", e.Record(s))
					case 2, 3:
						fine("wait", e.Wait(own))
					case 4:
						_, err := e.Query()
						fine("query", err)
						_, err = s.Query()
						fine("stream query", err)
					case 5:
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(100))*time.Microsecond)
						fine("synchronize", e.SynchronizeContext(ctx))
						fine("stream synchronize", s.SynchronizeContext(ctx))
						cancel()
					case 6:
						fine("close", events[r.IntN(len(events))].Swap(cuda.NewEvent(nil)).Close())
					case 7:
						fine("fill", cuda.Fill(s, sink, n))
						fine("launch", spin.Launch(s, cuda.Grid1D(1, 1), uint64(10)))
					case 8: // memory of one stream, used on another that may be captured meanwhile
						buf, err := cuda.AllocAsync[uint32](own, size)
						if err != nil {
							fine("alloc", err)
							continue
						}
						if err := s.WaitStream(own); err == nil {
							fine("fill elsewhere", cuda.Fill(s, buf, n))
						} else {
							fine("wait stream", err)
						}
						fine("buffer close", buf.Close())
					case 9:
						fine("own wait", own.WaitStream(own))
						done := e.Done()
						_ = done
					case 10, 11: // a capture of a shared stream, which others may join
						g, err := s.Capture(func() error {
							captures.Add(1)
							fine("in: fill", cuda.Fill(s, shared, n))
							fine("in: record", e.Record(s))
							if r.IntN(3) == 0 {
								fine("in: join", other.WaitStream(s))
								fine("in: joined fill", cuda.Fill(other, sink, n))
								fine("in: join back", s.WaitStream(other))
							}
							return nil
						})
						fine("capture", err)
						if g != nil {
							fine("graph close", g.Close())
						}
					case 12: // a graph of one's own, launched and checked
						for i := range in.Slice() {
							in.Slice()[i] = n
						}
						g, err := own.Capture(func() error {
							return errors.Join(cuda.Copy(own, shared, in), cuda.Copy(own, out, shared))
						})
						if err != nil {
							fine("own capture", err)
							continue
						}
						x, err := g.Instantiate()
						fine("instantiate", err)
						fine("graph launch", x.Launch(own))
						if err := own.Synchronize(); err == nil {
							checked.Add(1)
							if v := out.Slice()[r.IntN(size)]; v != n && in.Slice()[0] == n {
								// others fill shared too: then it is their number, and never none
								if v == 0 {
									t.Error("lost a copy")
								}
							}
						} else {
							fine("own synchronize", err)
						}
						fine("graph close", errors.Join(x.Close(), g.Close()))
					default: // bytes by way of memory that nobody else has
						buf, err := cuda.AllocAsync[uint32](own, size)
						if err != nil {
							fine("alloc", err)
							continue
						}
						for i := range in.Slice() {
							in.Slice()[i] = n
						}
						fine("copy", errors.Join(cuda.Copy(own, buf, in), cuda.Copy(own, out, buf), buf.Close()))
						if err := own.Synchronize(); err == nil {
							checked.Add(1)
							for _, v := range out.Slice() {
								if v != n {
									t.Errorf("%d instead of %d", v, n)
									break
								}
							}
						} else {
							fine("own synchronize", err)
						}
					}
				}
			})
		}
		all.Wait()
		for i := range events {
			require.NoError(t, events[i].Load().Close())
		}
		for _, s := range streams {
			require.NoError(t, s.Synchronize())
		}
		require.NoError(t, d.Synchronize())
		t.Logf("%d captures, %d checks", captures.Load(), checked.Load())
	})
}
