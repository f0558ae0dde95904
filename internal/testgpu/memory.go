package testgpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// FilledSize is the number of words of [Filled].
const FilledSize = 1 << 16

// Filled returns pool memory with v in it.
func Filled(t testing.TB, home *cuda.Stream, v uint32) *cuda.Buffer[uint32] {
	t.Helper()
	b := AllocAsync[uint32](t, home, FilledSize)
	require.NoError(t, cuda.Fill(home, b, v))
	return b
}

// CloseAndAllocate closes buf, allocates as much again at once, fails the test if that is
// the same memory, and fills it with 2.
func CloseAndAllocate(t testing.TB, home *cuda.Stream, buf *cuda.Buffer[uint32]) *cuda.Buffer[uint32] {
	t.Helper()
	was := buf.Pointer()
	Returns(t, func() { require.NoError(t, buf.Close()) })
	again := Filled(t, home, 2)
	require.NotEqual(t, was, again.Pointer(), "the memory is still used")
	Returns(t, func() { require.NoError(t, home.Synchronize()) })
	return again
}

// RequireFilled checks, in the order of home, that every word of b is want.
func RequireFilled(t testing.TB, home *cuda.Stream, b *cuda.Buffer[uint32], want uint32) {
	t.Helper()
	out := AllocHost[uint32](t, b.Device(), b.Len())
	require.NoError(t, cuda.Copy(home, out, b))
	require.NoError(t, home.Synchronize())
	RequireAll(t, want, out.Slice())
}

// RequireAll checks that all elements of got are want.
func RequireAll[T cuda.Element](t testing.TB, want T, got []T) {
	t.Helper()
	for i, v := range got {
		if v != want {
			require.Equal(t, want, v, "element %d", i)
		}
	}
}

// Pipe is work whose result says whether it was done, in this order and with which values:
// In is copied to Buf, and Buf to Out.
type Pipe struct {
	In, Out *cuda.HostBuffer[uint32]
	Buf     *cuda.Buffer[uint32]
}

// NewPipe allocates the memory of a Pipe.
func NewPipe(t testing.TB, d *cuda.Device) *Pipe {
	return &Pipe{In: AllocHost[uint32](t, d, 1000), Out: AllocHost[uint32](t, d, 1000), Buf: Alloc[uint32](t, d, 1000)}
}

// Enqueue enqueues the two copies.
func (p *Pipe) Enqueue(t testing.TB, s *cuda.Stream) {
	t.Helper()
	require.NoError(t, cuda.Copy(s, p.Buf, p.In))
	require.NoError(t, cuda.Copy(s, p.Out, p.Buf))
}

// Set puts v in In and clears Out.
func (p *Pipe) Set(v uint32) {
	clear(p.Out.Slice())
	for i := range p.In.Slice() {
		p.In.Slice()[i] = v
	}
}

// Require checks that want is in Out.
func (p *Pipe) Require(t testing.TB, want uint32) {
	t.Helper()
	for _, v := range p.Out.Slice() {
		require.Equal(t, want, v)
	}
}

// RequireLaunches checks that each launch of x on s takes new values through p.
func (p *Pipe) RequireLaunches(t testing.TB, x *cuda.GraphExec, s *cuda.Stream) {
	t.Helper()
	for v := range uint32(2) {
		p.Set(v + 7)
		require.NoError(t, x.Launch(s))
		require.NoError(t, s.Synchronize())
		p.Require(t, v+7)
	}
}
