package cuda_test

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
	rule(t, "01 Go slices of any size", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		d := b.dev()
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		for i, n := range []int{1, 3, stagingChunk - 1, stagingChunk, stagingChunk + 1, 7 << 19, 7 << 20, 21 << 19} {
			roundTrip(t, s, alloc[byte](t, d, n), i)
			pool := allocAsync[byte](t, s, n)
			roundTrip(t, s, pool, i)
			require.NoError(t, pool.Close())
		}
		wide := alloc[float64](t, d, 1000)
		in, out := make([]float64, 1000), make([]float64, 1000)
		for i := range in {
			in[i] = float64(i) / 3
		}
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, wide, in))
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, wide))
		require.Equal(t, in, out)
		empty := mustRange(t, wide, 3, 3)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, empty, nil))
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, []float64{}, empty))

		require.NoError(t, s.Close())
		require.LessOrEqual(t, calls.count("MemHostAlloc"), 8, "the memory is used again")
		require.Zero(t, calls.count("MemFreeHost"), "which would wait for the device")
		require.Zero(t, b.drv.Stats().HostBuffers, "the device's own is not the user's")
	})

	rule(t, "01 Go slices on default streams", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		d := b.dev()
		roundTrip(t, d.DefaultStream(), alloc[byte](t, d, 5<<19), 1)
		require.LessOrEqual(t, calls.count("MemHostAlloc"), 8)
	})

	rule(t, "01 Go slices by many goroutines", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		s := newStream(t, d, nil)
		bufs := make([]*cuda.Buffer[byte], 8)
		for i := range bufs {
			bufs[i] = alloc[byte](t, d, 5<<19+i)
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
		returns(t, all.Wait)
	})

	rule(t, "06 copies of Go slices can be given up", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		s := newStream(t, d, nil)
		const n = 9 << 20 // more than there is staging memory
		buf, target := alloc[byte](t, d, n), alloc[byte](t, d, n)
		require.NoError(t, cuda.Fill(s, buf, 5))
		require.NoError(t, s.Synchronize())
		for first := range 4 {
			release := hold(t, s)
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
				case <-time.After(soon):
				}
			}
			cancel()
			for range 2 {
				returns(t, func() { require.ErrorIs(t, <-results, context.Canceled) })
			}
			release()
			require.NoError(t, s.Synchronize())
			all(t, 0, out) // nothing is written after the return
		}
		roundTrip(t, s, buf, 9)
	})

	rule(t, "06 seven small copies wait for nothing", 1, func(t *testing.T, b *backend) {
		b, _ = counted(t, b, nil)
		d := b.dev()
		s, buf := newStream(t, d, nil), alloc[uint32](t, d, 1)
		release := hold(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for i := range uint32(7) {
			require.NoError(t, cuda.CopyFromSlice(ctx, s, buf, []uint32{i}))
		}
		require.False(t, query(t, s))
		release()
		holds(t, s, buf, 6)
	})

	rule(t, "06 a stream that is held up stops no other", 1, func(t *testing.T, b *backend) {
		b, _ = counted(t, b, nil)
		d := b.dev()
		slow, fast := newStream(t, d, nil), newStream(t, d, nil)
		one, two, out := alloc[uint32](t, d, 1), alloc[uint32](t, d, 1), make([]uint32, 1)
		release := hold(t, slow)
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
		require.False(t, query(t, slow))
		release()
		holds(t, slow, one, 6)
	})

	// Simulated only: a real GPU has few queues (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and
	// of two streams that share one the second can stop behind the first.
	t.Run("rule 06 copies that are held up stop none on an idle stream", func(t *testing.T) {
		_, d := simulatedDevice(t, nil)
		buf := alloc[uint32](t, d, 1)
		var copies []<-chan error
		var releases []func()
		for range 8 {
			s := newStream(t, d, nil)
			releases = append(releases, block(t, s))
			copies = append(copies, started(func() error { return cuda.CopyToSlice(t.Context(), s, make([]uint32, 1), buf) }))
		}
		parked(t, d.Driver(), 8)
		idle := newStream(t, d, nil)
		for _, more := range []func() error{
			func() error { return cuda.CopyToSlice(t.Context(), idle, make([]uint32, 1), buf) },
			func() error { return cuda.CopyFromSlice(t.Context(), idle, buf, make([]uint32, 1)) },
		} {
			require.NoError(t, told(t, started(more)))
		}
		notTold(t, copies...)
		for i, c := range copies {
			releases[i]()
			require.NoError(t, told(t, c))
		}
	})

	rule(t, "29 a copy behind which no event could be recorded", 1, func(t *testing.T, b *backend) {
		var fail atomic.Bool
		b, _ = counted(t, b, func(api *driver.API) {
			bare := api.EventRecord
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				if fail.Swap(false) {
					return driver.ErrorOutOfMemory
				}
				return bare(e, s)
			}
		})
		d := b.dev()
		s, other := newStream(t, d, nil), newStream(t, d, nil)
		one, two := alloc[uint32](t, d, 1), alloc[uint32](t, d, 1)
		release := hold(t, s)
		fail.Store(true)
		require.ErrorIs(t, cuda.CopyFromSlice(t.Context(), s, one, []uint32{7}), driver.ErrorOutOfMemory)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), other, two, []uint32{99}))
		release()
		holds(t, s, one, 7) // the copy itself was enqueued
		holds(t, other, two, 99)
	})

	rule(t, "06 a stream is closed without waiting for what is left of a copy", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		other := newStream(t, d, nil)
		buf, check := alloc[byte](t, d, 100), make([]byte, 100)
		s, err := d.NewStream(nil)
		require.NoError(t, err)
		release := hold(t, s)
		in := pattern(100, 2)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, buf, in))
		done := newEvent(t, nil)
		require.NoError(t, done.Record(s))
		returns(t, func() { require.NoError(t, s.Close()) })
		release()
		require.NoError(t, done.Synchronize())
		require.NoError(t, cuda.CopyToSlice(t.Context(), other, check, buf))
		require.Equal(t, in, check)
	})

	rule(t, "29 copies of Go slices are uses", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		buf := filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, cuda.CopyFromSlice(t.Context(), user, buf, make([]uint32, lifeSize)))
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, user.Synchronize())
		holds(t, home, again, 2)
	})

	rule(t, "24 Go slices that do not fit", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		s := newStream(t, d, nil)
		ctx, buf := t.Context(), alloc[int32](t, d, 4)
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, s, buf, make([]int32, 5)), cuda.ErrInvalid)
		require.ErrorContains(t, cuda.CopyToSlice(ctx, s, make([]int32, 3), buf), "4 elements, the slice 3")
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, nil, buf, make([]int32, 4)), cuda.ErrInvalid)
		require.ErrorIs(t, cuda.CopyToSlice[int32](ctx, s, nil, nil), cuda.ErrInvalid)
		_, other := simulatedDevice(t, nil)
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, newStream(t, other, nil), buf, make([]int32, 4)), cuda.ErrDeviceMismatch)
		require.NoError(t, buf.Close())
		require.ErrorIs(t, cuda.CopyFromSlice(ctx, s, buf, make([]int32, 4)), cuda.ErrClosed)
		require.ErrorIs(t, cuda.CopyToSlice(ctx, s, make([]int32, 4), buf), cuda.ErrClosed)
	})

	rule(t, "23 Go slices are not captured", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		s, free, buf := newStream(t, d, nil), newStream(t, d, nil), alloc[byte](t, d, 4)
		elsewhere := alloc[byte](t, d, 3<<20)
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
