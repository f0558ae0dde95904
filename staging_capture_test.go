package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
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
		for way, capture := range captureWays() {
			rule(t, "23 a capture amid a copy "+name+" a slice: "+way, 1, func(t *testing.T, b *backend) {
				b = changed(t, b, func(*driver.API) {})
				d := b.dev()
				s, other := newStream(t, d, nil), newStream(t, d, nil)
				buf, small := alloc[byte](t, d, n), alloc[byte](t, d, 5<<19)
				s.Handle() // others may capture it
				release := block(t, s)
				copying := started(func() error { return copied(t, s, buf) })
				becomes(t, func() bool { return b.drv.WaitStats().Waiting > 0 })
				require.NoError(t, capture(s, func() error {
					release()
					require.ErrorIs(t, told(t, copying), cuda.ErrCapturing)
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
