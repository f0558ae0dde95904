//go:build unix

package cuda_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestStreamValuesInRegisteredMemory(t *testing.T) {
	testgpu.Rule(t, "29 registered memory closed while a stream waits for a value in it", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
		memory := mapped(t, -1, 4096, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), 1024)
		word, err := cuda.RegisterHost(b.Device(), words)
		require.NoError(t, err)
		last, err := word.Range(1023, 1024)
		require.NoError(t, err)
		p.Set(6)
		require.NoError(t, s.WaitValue(last, 1))
		p.Enqueue(t, s)
		closing := testgpu.Go(word.Close)
		testgpu.ReleaseAtEnd(t, func() { atomic.StoreUint32(&words[1023], 1) })
		testgpu.NotReady(t, closing)
		require.Zero(t, calls.Count("MemHostUnregister"))
		atomic.StoreUint32(&words[1023], 1)
		require.NoError(t, testgpu.Receive(t, closing))
		require.NoError(t, s.Synchronize())
		p.Require(t, 6)
		require.Equal(t, 1, calls.Count("MemHostUnregister"))
		require.ErrorIs(t, s.WaitValue(last, 1), cuda.ErrClosed)
	})
}
