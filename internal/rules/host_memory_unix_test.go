//go:build unix

package rules_test

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// mapped returns n bytes that are not Go's.
func mapped(t testing.TB, fd, n, flags int) []byte {
	t.Helper()
	m, err := syscall.Mmap(fd, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(m)) })
	return m
}

// mappedFile maps a new file in dir.
func mappedFile(t testing.TB, dir string, data []byte, flags int) []byte {
	t.Helper()
	file, err := os.CreateTemp(dir, "purecuda-*")
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(file.Close(), os.Remove(file.Name()))) }()
	_, err = file.Write(data)
	require.NoError(t, err)
	return mapped(t, int(file.Fd()), len(data), flags)
}

func TestRegisterHost(t *testing.T) {
	const n = 1 << 16
	testgpu.Rule(t, "01 a private mapping of a file", 1, func(t *testing.T, b *testgpu.Backend) {
		s, dst := testgpu.NewStream(t, b.Device(), nil), testgpu.Alloc[byte](t, b.Device(), n)
		want := bytes.Repeat([]byte("private "), n/8)
		in, err := cuda.RegisterHost(b.Device(), mappedFile(t, t.TempDir(), want, syscall.MAP_PRIVATE))
		require.NoError(t, err)
		require.NoError(t, cuda.Copy(s, dst, in))
		out := make([]byte, n)
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, dst))
		require.Equal(t, want, out)
		require.NoError(t, in.Close())
	})

	testgpu.Rule(t, "01 memory that others mapped", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		s, dst := testgpu.NewStream(t, d, nil), testgpu.Alloc[byte](t, d, n)
		want := bytes.Repeat([]byte("mapped! "), n/8)
		from, to := mappedFile(t, t.TempDir(), want, syscall.MAP_PRIVATE), mapped(t, -1, n, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if _, err := os.Stat("/dev/shm"); err == nil {
			from = mappedFile(t, "/dev/shm", want, syscall.MAP_SHARED)
		}
		in, err := cuda.RegisterHost(d, from)
		require.NoError(t, err)
		out, err := cuda.RegisterHost(d, to)
		require.NoError(t, err)
		_, err = cuda.RegisterHost(d, from)
		require.ErrorIs(t, err, driver.ErrorHostMemoryAlreadyRegistered)
		_, err = cuda.RegisterHost(d, from[4096:8192])
		require.ErrorIs(t, err, driver.ErrorHostMemoryAlreadyRegistered)

		require.NoError(t, cuda.Copy(s, dst, in))
		require.NoError(t, cuda.Copy(s, out, dst))
		require.NoError(t, s.Synchronize())
		require.NoError(t, in.Close())
		require.NoError(t, in.Close())
		require.NoError(t, out.Close())
		require.ErrorIs(t, cuda.Copy(s, dst, in), cuda.ErrClosed)
		require.Equal(t, want, from, "Close frees nothing")
		require.Equal(t, want, out.Slice())

		again, err := cuda.RegisterHost(d, from)
		require.NoError(t, err)
		require.NoError(t, again.Close())
	})

	testgpu.Rule(t, "29 registered memory closed while a copy is in flight", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		s, dst := testgpu.NewStream(t, d, nil), testgpu.Alloc[uint32](t, d, n/4)
		memory := mapped(t, -1, n, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), n/4)
		for i := range words {
			words[i] = 3
		}
		in, err := cuda.RegisterHost(d, words)
		require.NoError(t, err)
		release := testgpu.Hold(t, s)
		require.NoError(t, cuda.Copy(s, dst, in))
		closed := make(chan error, 1)
		go func() { closed <- in.Close() }()
		select {
		case err := <-closed:
			t.Fatal("did not wait for the copy:", err)
		case <-time.After(testgpu.Soon):
		}
		require.Zero(t, calls.Count("MemHostUnregister"))
		release()
		testgpu.Returns(t, func() { require.NoError(t, <-closed) })
		require.Equal(t, 1, calls.Count("MemHostUnregister"))
		clear(words) // the caller's again, to be unmapped or pinned anew
		again, err := cuda.RegisterHost(d, words)
		require.NoError(t, err)
		require.NoError(t, again.Close())
		testgpu.RequireFilled(t, s, dst, 3)
	})
}

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
