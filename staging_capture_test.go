package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A capture may begin while a slice is being copied on its stream. What is left of the copy is
// refused, is not in the graph, and other copies go on as before.
func TestCaptureAmidACopyOfASlice(t *testing.T) {
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
			testgpu.Rule(t, "23 a capture amid a copy "+name+" a slice: "+way, 1, func(t *testing.T, b *testgpu.Backend) {
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
