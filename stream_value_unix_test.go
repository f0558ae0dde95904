//go:build unix

package cuda_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

func TestStreamValuesInRegisteredMemory(t *testing.T) {
	rule(t, "29 registered memory closed while a stream waits for a value in it", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
		memory := mapped(t, -1, 4096, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), 1024)
		word, err := cuda.RegisterHost(b.dev(), words)
		require.NoError(t, err)
		last, err := word.Range(1023, 1024)
		require.NoError(t, err)
		p.set(6)
		require.NoError(t, s.WaitValue(last, 1))
		p.enqueue(t, s)
		closing := started(word.Close)
		releasedAtEnd(t, func() { atomic.StoreUint32(&words[1023], 1) })
		notTold(t, closing)
		require.Zero(t, calls.count("MemHostUnregister"))
		atomic.StoreUint32(&words[1023], 1)
		require.NoError(t, told(t, closing))
		require.NoError(t, s.Synchronize())
		p.require(t, 6)
		require.Equal(t, 1, calls.count("MemHostUnregister"))
		require.ErrorIs(t, s.WaitValue(last, 1), cuda.ErrClosed)
	})
}
