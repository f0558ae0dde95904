package rules_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestCurrentStreamRules(t *testing.T) {
	testgpu.Rule(t, "25 a context carries the stream, nested and back", 2, func(t *testing.T, b *testgpu.Backend) {
		d0, d1 := b.Devices[0], b.Devices[1]
		s0, s1, inner := testgpu.NewStream(t, d0, nil), testgpu.NewStream(t, d1, nil), testgpu.NewStream(t, d0, nil)
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

	testgpu.Rule(t, "25 two goroutines never see each other's choice", 1, func(t *testing.T, b *testgpu.Backend) {
		ctx := t.Context()
		var wg sync.WaitGroup
		for range 8 {
			s := testgpu.NewStream(t, b.Device(), nil)
			wg.Go(func() {
				for range 1000 {
					mine := cuda.WithStream(ctx, s)
					if b.Device().CurrentStream(mine) != s || b.Device().CurrentStream(ctx) != b.Device().DefaultStream() {
						t.Error("another goroutine's stream")
						return
					}
				}
			})
		}
		wg.Wait()
	})

	testgpu.Rule(t, "25 nesting deeply does not slow the innermost level", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		ctx := t.Context()
		for range 10000 {
			ctx = cuda.WithStream(ctx, s)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if b.Device().CurrentStream(ctx) != s {
				t.Error("wrong stream")
			}
		}))
	})

	testgpu.Rule(t, "26 the default stream is current, and indexes are checked", 1, func(t *testing.T, b *testgpu.Backend) {
		require.Same(t, b.Device().DefaultStream(), b.Device().CurrentStream(t.Context()))
		for _, index := range []int{-1, b.Driver.DeviceCount()} {
			_, err := b.Driver.OpenDevice(index)
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "devices are 0 to")
		}
		s := testgpu.NewStream(t, b.Device(), nil)
		got, err := cuda.CurrentStream(cuda.WithStream(t.Context(), s))
		require.NoError(t, err)
		require.Same(t, s, got)
	})
}
