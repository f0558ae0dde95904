package cuda_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

func TestCurrentStreamRules(t *testing.T) {
	rule(t, "25 a context carries the stream, nested and back", 2, func(t *testing.T, b *backend) {
		d0, d1 := b.devices[0], b.devices[1]
		s0, s1, inner := newStream(t, d0, nil), newStream(t, d1, nil), newStream(t, d0, nil)
		current := func(ctx context.Context) (*cuda.Device, *cuda.Stream, *cuda.Stream) {
			d, err := cuda.CurrentDevice(ctx)
			require.NoError(t, err)
			return d, d0.CurrentStream(ctx), d1.CurrentStream(ctx)
		}
		check := func(ctx context.Context, d *cuda.Device, on0, on1 *cuda.Stream) {
			t.Helper()
			gotD, got0, got1 := current(ctx)
			require.Same(t, d, gotD)
			require.Same(t, on0, got0)
			require.Same(t, on1, got1)
		}
		outer := cuda.WithStream(t.Context(), s0)
		check(outer, d0, s0, d1.DefaultStream())
		middle := cuda.WithStream(outer, s1)
		check(middle, d1, s0, s1)
		innermost := cuda.WithStream(middle, inner)
		check(innermost, d0, inner, s1)
		check(middle, d1, s0, s1) // leaving is using the outer context
		check(outer, d0, s0, d1.DefaultStream())

		check(cuda.WithStream(middle, nil), d1, s0, s1) // nil changes nothing
		check(cuda.WithDevice(middle, d0), d0, s0, s1)
		check(cuda.WithDevice(middle, nil), d1, s0, s1)

		type key struct{}
		under, cancel := context.WithCancel(context.WithValue(innermost, key{}, "v"))
		defer cancel()
		check(under, d0, inner, s1)
		require.Equal(t, "v", cuda.WithStream(under, s1).Value(key{}))
		cancel()
		require.ErrorIs(t, cuda.WithStream(under, s1).Err(), context.Canceled)
	})

	rule(t, "25 two goroutines never see each other's choice", 1, func(t *testing.T, b *backend) {
		ctx := t.Context()
		var wg sync.WaitGroup
		for range 8 {
			s := newStream(t, b.dev(), nil)
			wg.Go(func() {
				for range 1000 {
					mine := cuda.WithStream(ctx, s)
					if b.dev().CurrentStream(mine) != s || b.dev().CurrentStream(ctx) != b.dev().DefaultStream() {
						t.Error("another goroutine's stream")
						return
					}
				}
			})
		}
		wg.Wait()
	})

	rule(t, "25 nesting deeply does not slow the innermost level", 1, func(t *testing.T, b *backend) {
		s := newStream(t, b.dev(), nil)
		ctx := t.Context()
		for range 10000 {
			ctx = cuda.WithStream(ctx, s)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if b.dev().CurrentStream(ctx) != s {
				t.Error("wrong stream")
			}
		}))
	})

	rule(t, "26 the default stream is current, and indexes are checked", 1, func(t *testing.T, b *backend) {
		require.Same(t, b.dev().DefaultStream(), b.dev().CurrentStream(t.Context()))
		for _, index := range []int{-1, b.drv.DeviceCount()} {
			_, err := b.drv.OpenDevice(index)
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "devices are 0 to")
		}
		s := newStream(t, b.dev(), nil)
		got, err := cuda.CurrentStream(cuda.WithStream(t.Context(), s))
		require.NoError(t, err)
		require.Same(t, s, got)
	})
}
