package cuda_test

import (
	"bytes"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A part of an allocation passes as that part, and closing it closes the import.
func TestOpenBuffer(t *testing.T) {
	p := testgpu.NewPeers(t, cudatest.Config{})
	theirs := testgpu.Alloc[uint32](t, p.There.Device(), 64)
	part, err := theirs.Range(10, 30)
	require.NoError(t, err)
	offset, size := part.Allocation()
	require.Equal(t, [2]uint64{40, 80}, [2]uint64{offset, size})
	whole := testgpu.OpenBuffer[float64](t, p, theirs, nil)
	require.Equal(t, 32, whole.Len())
	before := p.Here.Driver.Stats()

	var closed atomic.Int32
	opts := &cuda.OpenOptions{Exporter: p.Process(t), Offset: offset, Size: size, Closed: func() { closed.Add(1) }}
	ours := testgpu.OpenBuffer[float64](t, p, part, opts)
	require.Equal(t, 10, ours.Len())
	offset, size = ours.Allocation()
	require.Equal(t, [2]uint64{40, 80}, [2]uint64{offset, size})
	exporter, foreign := ours.Exporter()
	require.Equal(t, p.Process(t), exporter)
	require.True(t, foreign)
	_, foreign = theirs.Exporter()
	require.False(t, foreign)
	exporter, foreign = whole.Exporter()
	require.Zero(t, exporter, "nobody has said it")
	require.True(t, foreign)
	for range 2 {
		require.NoError(t, ours.Close())
		require.EqualValues(t, 1, closed.Load())
	}
	require.Equal(t, before, p.Here.Driver.Stats())
	tail := testgpu.OpenBuffer[byte](t, p, theirs, &cuda.OpenOptions{Offset: 200})
	require.Equal(t, 56, tail.Len(), "all that comes after it")

	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	before = p.Here.Driver.Stats()
	for _, c := range []struct {
		offset, size uint64
		text         string
	}{
		{0, 264, "the part is of 264 bytes at 0, but the allocation has 256"},
		{8, 256, "256 bytes at 8, but the allocation has 256"},
		{256, 8, "8 bytes at 256"},
		{256, 0, "0 bytes are not a number of elements of 8 bytes"},
		{264, 0, "0 bytes at 264"},
		{math.MaxUint64 - 7, 16, "the allocation has 256"},
		{8, math.MaxUint64 - 7, "the allocation has 256"},
		{0, 12, "12 bytes are not a number of elements of 8 bytes"},
		{4, 8, "byte 4 of the allocation is no place for elements of 8 bytes"},
	} {
		_, err := cuda.OpenBuffer[float64](p.Here.Device(), h, &cuda.OpenOptions{Offset: c.offset, Size: c.size, Closed: func() { t.Error("it was never open") }})
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorContains(t, err, "cuda: buffer open: ")
		require.ErrorContains(t, err, c.text)
	}
	require.Equal(t, before, p.Here.Driver.Stats())
	_, err = cuda.OpenBuffer[byte](nil, h, nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	var none *cuda.Buffer[byte]
	offset, size = none.Allocation()
	require.Zero(t, offset+size)
	_, foreign = none.Exporter()
	require.False(t, foreign)
}

func TestOpenEventOptions(t *testing.T) {
	p := testgpu.NewPeers(t, cudatest.Config{})
	t.Cleanup(p.Exporter.Kill)
	theirs := testgpu.NewSharedEvent(t, p.There.Device())
	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	var closed atomic.Int32
	opts := &cuda.OpenOptions{Exporter: p.Process(t), Closed: func() { closed.Add(1) }}
	ours, err := p.Here.Device().OpenEvent(h, opts)
	require.NoError(t, err)
	exporter, foreign := ours.Exporter()
	require.Equal(t, p.Process(t), exporter)
	require.True(t, foreign)
	_, foreign = theirs.Exporter()
	require.False(t, foreign)

	own, err := p.There.Device().OpenEvent(h, opts)
	require.NoError(t, err, "it is the exporter's own")
	require.Equal(t, testgpu.NativeEvent(t, theirs), testgpu.NativeEvent(t, own))
	require.NoError(t, own.Close())
	require.EqualValues(t, 1, closed.Load())

	s := testgpu.NewStream(t, p.There.Device(), nil)
	p.GPU.Hold(s)
	require.NoError(t, theirs.Record(s))
	waiting := testgpu.Go(ours.Synchronize)
	p.Exporter.Kill()
	require.ErrorIs(t, testgpu.Receive(t, waiting), cuda.ErrPeerGone)
	for range 2 {
		require.NoError(t, ours.Close())
		require.EqualValues(t, 2, closed.Load())
	}
	_, err = p.Here.Device().OpenEvent(h, opts)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: event open: ")
	require.EqualValues(t, 2, closed.Load())
}

// Bytes from elsewhere open memory only if they are the handle, and never panic.
func FuzzBufferFromIPCHandle(f *testing.F) {
	target := sync.OnceValue(func() (x struct {
		d      *cuda.Device
		handle driver.IPCMemHandle
	}) {
		p := testgpu.NewPeers(f, cudatest.Config{})
		there, err := cuda.Alloc[byte](p.There.Device(), 64)
		require.NoError(f, err)
		f.Cleanup(func() { require.NoError(f, there.Close()) })
		x.handle, err = there.IPCHandle()
		require.NoError(f, err)
		x.d = p.Here.Device()
		return x
	})
	handle := target().handle
	f.Add([]byte{})
	f.Add(handle[:])
	f.Add(append([]byte{0, 'c'}, handle[:]...))
	f.Add(append([]byte{0, 'e'}, handle[:]...))
	f.Add(append([]byte{0, 'e', 1, 2, 3}, make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := target()
		right := bytes.Equal(b, x.handle[:]) || len(b) == 66 && b[1] == 'c' && bytes.Equal(b[2:], x.handle[:])
		opened, err := cuda.BufferFromIPCHandle(x.d, b)
		if err == nil {
			require.NoError(t, opened.Close())
		}
		require.Equal(t, right, err == nil, "%q: %v", b, err)
	})
}
