package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestBufferFromIPCHandle(t *testing.T) {
	testgpu.Rule(t, "31 handles of memory as bytes", 1, func(t *testing.T, b *testgpu.Backend) {
		buf := testgpu.Alloc[uint32](t, b.Device(), 16)
		h, err := buf.IPCHandle()
		require.NoError(t, err)
		part, err := buf.Range(8, 16)
		require.NoError(t, err)
		same, err := part.IPCHandle()
		require.NoError(t, err)
		require.Equal(t, h, same, "of the allocation")

		for name, bytes := range map[string][]byte{"plain": h[:], "PyTorch's": append([]byte{1, 'c'}, h[:]...), "another version": append([]byte{9, 'c'}, h[:]...)} {
			opened, err := cuda.BufferFromIPCHandle(b.Device(), bytes)
			require.NoError(t, err, name)
			require.Equal(t, buf.Pointer(), opened.Pointer(), name)
			require.Equal(t, 64, opened.Len(), name)
			require.NoError(t, opened.Close(), name)
		}
		for name, c := range map[string]struct {
			bytes []byte
			err   error
			text  string
		}{
			"nothing":             {nil, cuda.ErrInvalid, "this has 0"},
			"one":                 {h[:1], cuda.ErrInvalid, "this has 1"},
			"one too few":         {h[:63], cuda.ErrInvalid, "this has 63"},
			"one too many":        {append(h[:64:64], 0), cuda.ErrInvalid, "this has 65"},
			"66 of another type":  {append([]byte{1, 'x'}, h[:]...), cuda.ErrInvalid, "this has 66"},
			"67":                  {append([]byte{1, 'c', 0}, h[:]...), cuda.ErrInvalid, "this has 67"},
			"an expandable one":   {append([]byte{1, 'e'}, make([]byte, 30)...), errors.ErrUnsupported, "expandable_segments:True"},
			"an expandable of 66": {append([]byte{1, 'e'}, h[:]...), errors.ErrUnsupported, "expandable_segments:True"},
			"garbage":             {make([]byte, 64), driver.ErrorInvalidValue, "not of memory that exists"},
		} {
			_, err := cuda.BufferFromIPCHandle(b.Device(), c.bytes)
			require.ErrorIs(t, err, c.err, name)
			require.ErrorContains(t, err, c.text, name)
			require.ErrorContains(t, err, "cuda: buffer open: ", name)
		}
		_, err = cuda.BufferFromIPCHandle(nil, h[:])
		require.ErrorIs(t, err, cuda.ErrInvalid)
	})
}

func TestIPCRules(t *testing.T) {
	testgpu.Rule(t, "21 exporting makes the event on the given device", 1, func(t *testing.T, b *testgpu.Backend) {
		e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: b.Device()})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		require.NotZero(t, h)
		require.Same(t, b.Device(), e.Device())
		require.True(t, testgpu.Query(t, e))
		require.NoError(t, e.Record(testgpu.NewStream(t, b.Device(), nil)))
	})

	testgpu.Rule(t, "21 an ordinary event has no handle, and says so", 1, func(t *testing.T, b *testgpu.Backend) {
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(testgpu.NewStream(t, b.Device(), nil)))
		_, err := e.IPCHandle()
		require.ErrorIs(t, err, cuda.ErrNotInterprocess)
	})

	testgpu.Rule(t, "21 handles of a wrong size or of garbage are errors", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, size := range []int{0, 63, 65} {
			_, err := cuda.EventFromIPCHandle(b.Device(), make([]byte, size))
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "64 bytes")
			require.ErrorContains(t, err, fmt.Sprintf("this has %d", size))
		}
		_, err := cuda.EventFromIPCHandle(nil, make([]byte, 64))
		require.ErrorIs(t, err, cuda.ErrInvalid)
		random := make([]byte, 64)
		for range 100 {
			for i := range random {
				random[i] = byte(rand.Uint32())
			}
			_, err := cuda.EventFromIPCHandle(b.Device(), random)
			require.Error(t, err)
		}
	})

	testgpu.Rule(t, "21 a handle of the same process is of the same event", 1, func(t *testing.T, b *testgpu.Backend) {
		e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: b.Device()})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		same, err := b.Device().OpenEvent(h, nil)
		require.NoError(t, err)
		require.NotSame(t, e, same)
		require.Equal(t, testgpu.NativeEvent(t, e), testgpu.NativeEvent(t, same))
		require.NoError(t, e.Close())
		require.True(t, testgpu.Query(t, same))
		again, err := same.IPCHandle()
		require.NoError(t, err)
		require.Equal(t, h, again)
		require.NoError(t, same.Close())
		_, err = b.Device().OpenEvent(h, nil)
		require.Error(t, err, "it is closed")
	})
}
