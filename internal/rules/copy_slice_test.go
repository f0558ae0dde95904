package rules_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// stagingChunk is how much of a slice is copied at a time.
const stagingChunk = 1 << 20

// pattern returns n bytes that differ from those of another seed everywhere.
func pattern(n, seed int) []byte {
	p := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(i+seed)*0x9e3779b97f4a7c15)
	}
	return p[:n]
}

func roundTrip(t testing.TB, s *cuda.Stream, buf *cuda.Buffer[byte], seed int) {
	in, out := pattern(buf.Len(), seed), make([]byte, buf.Len())
	want := slices.Clone(in)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), s, buf, in))
	clear(in) // the slice is the caller's again
	require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, buf))
	require.True(t, slices.Equal(want, out), "%d bytes", buf.Len())
}

func TestCopySlice(t *testing.T) {
	testgpu.Rule(t, "01 Go slices of any size", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		for i, n := range []int{1, 3, stagingChunk - 1, stagingChunk, stagingChunk + 1, 7 << 19, 7 << 20, 21 << 19} {
			roundTrip(t, s, testgpu.Alloc[byte](t, d, n), i)
			pool := testgpu.AllocAsync[byte](t, s, n)
			roundTrip(t, s, pool, i)
			require.NoError(t, pool.Close())
		}
		wide := testgpu.Alloc[float64](t, d, 1000)
		in, out := make([]float64, 1000), make([]float64, 1000)
		for i := range in {
			in[i] = float64(i) / 3
		}
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, wide, in))
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, wide))
		require.Equal(t, in, out)
		empty := testgpu.Range(t, wide, 3, 3)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, empty, nil))
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, []float64{}, empty))

		require.NoError(t, s.Close())
		require.LessOrEqual(t, calls.Count("MemHostAlloc"), 8, "the memory is used again")
		require.Zero(t, calls.Count("MemFreeHost"), "which would wait for the device")
		require.Zero(t, b.Driver.Stats().HostBuffers, "the device's own is not the user's")
	})

	testgpu.Rule(t, "01 Go slices on default streams", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		roundTrip(t, d.DefaultStream(), testgpu.Alloc[byte](t, d, 5<<19), 1)
		require.LessOrEqual(t, calls.Count("MemHostAlloc"), 8)
	})

	testgpu.Rule(t, "01 Go slices by many goroutines", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		bufs := make([]*cuda.Buffer[byte], 8)
		for i := range bufs {
			bufs[i] = testgpu.Alloc[byte](t, d, 5<<19+i)
		}
		var all sync.WaitGroup
		for i, buf := range bufs {
			all.Go(func() {
				for j := range 3 {
					in, out := pattern(buf.Len(), i*100+j), make([]byte, buf.Len())
					if err := cuda.CopyFromSlice(t.Context(), s, buf, in); err != nil {
						t.Error(err)
					}
					if err := cuda.CopyToSlice(t.Context(), s, out, buf); err != nil {
						t.Error(err)
					}
					if !slices.Equal(in, out) {
						t.Errorf("goroutine %d: other bytes", i)
					}
				}
			})
		}
		testgpu.Returns(t, all.Wait)
	})

	testgpu.Rule(t, "06 copies of Go slices can be given up", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		const n = 9 << 20 // more than there is staging memory
		buf, target := testgpu.Alloc[byte](t, d, n), testgpu.Alloc[byte](t, d, n)
		require.NoError(t, cuda.Fill(s, buf, 5))
		require.NoError(t, s.Synchronize())
		for first := range 4 {
			release := testgpu.Hold(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			results := make(chan error, 2)
			out := make([]byte, n)
			copies := []func() error{
				func() error { return cuda.CopyToSlice(ctx, s, out, buf) },
				func() error { return cuda.CopyFromSlice(ctx, s, target, make([]byte, n)) },
			}
			for i := range copies { // the first gets most of the staging memory
				go func() { results <- copies[(first+i)%2]() }()
				select {
				case err := <-results:
					t.Fatal("did not wait", err)
				case <-time.After(testgpu.Soon):
				}
			}
			cancel()
			for range 2 {
				testgpu.Returns(t, func() { require.ErrorIs(t, <-results, context.Canceled) })
			}
			release()
			require.NoError(t, s.Synchronize())
			testgpu.RequireAll(t, 0, out) // nothing is written after the return
		}
		roundTrip(t, s, buf, 9)
	})

	testgpu.Rule(t, "06 seven small copies wait for nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		b, _ = testgpu.Counted(t, b, nil)
		d := b.Device()
		s, buf := testgpu.NewStream(t, d, nil), testgpu.Alloc[uint32](t, d, 1)
		release := testgpu.Hold(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for i := range uint32(7) {
			require.NoError(t, cuda.CopyFromSlice(ctx, s, buf, []uint32{i}))
		}
		require.False(t, testgpu.Query(t, s))
		release()
		testgpu.RequireFilled(t, s, buf, 6)
	})

	testgpu.Rule(t, "06 a stream that is held up stops no other", 1, func(t *testing.T, b *testgpu.Backend) {
		b, _ = testgpu.Counted(t, b, nil)
		d := b.Device()
		slow, fast := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		one, two, out := testgpu.Alloc[uint32](t, d, 1), testgpu.Alloc[uint32](t, d, 1), make([]uint32, 1)
		release := testgpu.Hold(t, slow)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for i := range uint32(20) {
			if i < 7 {
				require.NoError(t, cuda.CopyFromSlice(ctx, slow, one, []uint32{i}))
			}
			require.NoError(t, cuda.CopyFromSlice(ctx, fast, two, []uint32{i}))
			require.NoError(t, cuda.CopyToSlice(ctx, fast, out, two))
			require.Equal(t, i, out[0])
		}
		require.False(t, testgpu.Query(t, slow))
		release()
		testgpu.RequireFilled(t, slow, one, 6)
	})

	// Simulated only: a real GPU has few queues (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and
	// of two streams that share one the second can stop behind the first.
	t.Run("rule 06 copies that are held up stop none on an idle stream", func(t *testing.T) {
		_, d := testgpu.SimulatedDevice(t, nil)
		buf := testgpu.Alloc[uint32](t, d, 1)
		var copies []<-chan error
		var releases []func()
		for range 8 {
			s := testgpu.NewStream(t, d, nil)
			releases = append(releases, testgpu.Hold(t, s))
			copies = append(copies, testgpu.Go(func() error { return cuda.CopyToSlice(t.Context(), s, make([]uint32, 1), buf) }))
		}
		testgpu.Parked(t, d.Driver(), 8)
		idle, other := testgpu.NewStream(t, d, nil), testgpu.Alloc[uint32](t, d, 1)
		for _, more := range []func() error{
			func() error { return cuda.CopyToSlice(t.Context(), idle, make([]uint32, 1), buf) },
			func() error { return cuda.CopyFromSlice(t.Context(), idle, other, make([]uint32, 1)) },
		} {
			require.NoError(t, testgpu.Receive(t, testgpu.Go(more)))
		}
		testgpu.NotReady(t, copies...)
		for i, c := range copies {
			releases[i]()
			require.NoError(t, testgpu.Receive(t, c))
		}
	})

	testgpu.Rule(t, "29 a copy behind which no event could be recorded", 1, func(t *testing.T, b *testgpu.Backend) {
		var fail atomic.Bool
		b, _ = testgpu.Counted(t, b, func(api *driver.API) {
			bare := api.EventRecord
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				if fail.Swap(false) {
					return driver.ErrorOutOfMemory
				}
				return bare(e, s)
			}
		})
		d := b.Device()
		s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		one, two := testgpu.Alloc[uint32](t, d, 1), testgpu.Alloc[uint32](t, d, 1)
		release := testgpu.Hold(t, s)
		fail.Store(true)
		require.ErrorIs(t, cuda.CopyFromSlice(t.Context(), s, one, []uint32{7}), driver.ErrorOutOfMemory)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), other, two, []uint32{99}))
		release()
		testgpu.RequireFilled(t, s, one, 7) // the copy itself was enqueued
		testgpu.RequireFilled(t, other, two, 99)
	})

	testgpu.Rule(t, "06 a stream is closed without waiting for what is left of a copy", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		other := testgpu.NewStream(t, d, nil)
		buf, check := testgpu.Alloc[byte](t, d, 100), make([]byte, 100)
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
		in := pattern(100, 2)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, buf, in))
		done := testgpu.NewEvent(t, nil)
		require.NoError(t, done.Record(s))
		testgpu.Returns(t, func() { require.NoError(t, s.Close()) })
		release()
		require.NoError(t, done.Synchronize())
		require.NoError(t, cuda.CopyToSlice(t.Context(), other, check, buf))
		require.Equal(t, in, check)
	})

	testgpu.Rule(t, "29 copies of Go slices are uses", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), user, buf, make([]uint32, testgpu.FilledSize)))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "24 Go slices that do not fit", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s := testgpu.NewStream(t, d, nil)
		ctx, buf := t.Context(), testgpu.Alloc[int32](t, d, 4)
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, s, buf, make([]int32, 5)), cuda.ErrInvalid)
		require.ErrorContains(t, cuda.CopyToSlice(ctx, s, make([]int32, 3), buf), "4 elements, the slice 3")
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, nil, buf, make([]int32, 4)), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.CopyToSlice[int32](ctx, s, nil, nil), cuda.ErrInvalid)
		_, other := testgpu.SimulatedDevice(t, nil)
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, testgpu.NewStream(t, other, nil), buf, make([]int32, 4)), cuda.ErrDeviceMismatch)
		require.NoError(t, buf.Close())
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, s, buf, make([]int32, 4)), cuda.ErrClosed)
		require.ErrorIs(t, cuda.CopyToSlice(ctx, s, make([]int32, 4), buf), cuda.ErrClosed)
	})

	testgpu.Rule(t, "23 Go slices are not captured", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s, free, buf := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.Alloc[byte](t, d, 4)
		elsewhere := testgpu.Alloc[byte](t, d, 3<<20)
		g, err := s.Capture(func() error {
			require.ErrorIs(t, cuda.CopyFromSlice(t.Context(), s, buf, []byte{1, 2, 3, 4}), cuda.ErrCapturing)
			require.ErrorIs(t, cuda.CopyToSlice(t.Context(), s, make([]byte, 4), buf), cuda.ErrCapturing)
			roundTrip(t, free, elsewhere, 1)
			roundTrip(t, d.DefaultStream(), elsewhere, 1)
			return cuda.Fill(s, buf, 1)
		})
		require.NoError(t, err)
		require.NoError(t, g.Close())
	})
}

// A capture may begin while a slice is being copied on its stream. What is left of the copy is
// refused, is not in the graph, and other copies go on as before.
func TestCaptureDuringACopyOfASlice(t *testing.T) {
	const n = 16 << 20 // more than there is staging memory
	for name, copied := range map[string]func(t *testing.T, s *cuda.Stream, buf *cuda.Buffer[byte]) error{
		"from": func(t *testing.T, s *cuda.Stream, buf *cuda.Buffer[byte]) error {
			return cuda.CopyFromSlice(t.Context(), s, buf, make([]byte, n))
		},
		"to": func(t *testing.T, s *cuda.Stream, buf *cuda.Buffer[byte]) error {
			return cuda.CopyToSlice(t.Context(), s, make([]byte, n), buf)
		},
	} {
		for way, capture := range testgpu.CaptureWays() {
			testgpu.Rule(t, "23 a capture during a copy "+name+" a slice: "+way, 1, func(t *testing.T, b *testgpu.Backend) {
				b = testgpu.Modified(t, b, func(*driver.API) {})
				d := b.Device()
				s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
				buf, small := testgpu.Alloc[byte](t, d, n), testgpu.Alloc[byte](t, d, 5<<19)
				s.Handle() // others may capture it
				release := testgpu.Hold(t, s)
				copying := testgpu.Go(func() error { return copied(t, s, buf) })
				testgpu.WaitUntil(t, func() bool { return b.Driver.WaitStats().Waiting > 0 })
				require.NoError(t, capture(s, func() error {
					release()
					require.ErrorIs(t, testgpu.Receive(t, copying), cuda.ErrCapturing)
					roundTrip(t, other, small, 1)
					return nil
				}))
				for _, s := range []*cuda.Stream{s, other} {
					roundTrip(t, s, small, 2)
				}
			})
		}
	}
}
