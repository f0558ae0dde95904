package testgpu

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
)

// closeAtEnd closes c when the test ends.
func closeAtEnd(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() { require.NoError(t, c.Close()) })
}

// NewStream makes a stream that is closed when the test ends.
func NewStream(t testing.TB, d *cuda.Device, opts *cuda.StreamOptions) *cuda.Stream {
	t.Helper()
	s, err := d.NewStream(opts)
	require.NoError(t, err)
	closeAtEnd(t, s)
	return s
}

// NewEvent makes an event that is closed when the test ends.
func NewEvent(t testing.TB, opts *cuda.EventOptions) *cuda.Event {
	t.Helper()
	e := cuda.NewEvent(opts)
	closeAtEnd(t, e)
	return e
}

// NewRecordedEvent makes an event and records it on s. The test closes it, or leaves it to the
// garbage collector.
func NewRecordedEvent(t testing.TB, s *cuda.Stream, opts *cuda.EventOptions) *cuda.Event {
	t.Helper()
	e := cuda.NewEvent(opts)
	require.NoError(t, e.Record(s))
	return e
}

// NewSharedEvent makes an event of d that can be shared with other processes.
func NewSharedEvent(t testing.TB, d *cuda.Device) *cuda.Event {
	t.Helper()
	return NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
}

// Timed are the options of an event that records time.
func Timed() *cuda.EventOptions { return &cuda.EventOptions{Timing: true} }

// External are the options of an external event.
func External() *cuda.EventOptions { return &cuda.EventOptions{External: true} }

// Unpooled returns an event whose native event is destroyed with it and never used again.
func Unpooled() *cuda.Event { return cuda.NewEvent(&cuda.EventOptions{Interprocess: true}) }

// Alloc allocates plain memory that is freed when the test ends.
func Alloc[T cuda.Element](t testing.TB, d *cuda.Device, n int) *cuda.Buffer[T] {
	t.Helper()
	b, err := cuda.Alloc[T](d, n)
	require.NoError(t, err)
	closeAtEnd(t, b)
	return b
}

// AllocAsync allocates memory of the pool that is freed when the test ends.
func AllocAsync[T cuda.Element](t testing.TB, s *cuda.Stream, n int) *cuda.Buffer[T] {
	t.Helper()
	b, err := cuda.AllocAsync[T](s, n)
	require.NoError(t, err)
	closeAtEnd(t, b)
	return b
}

// AllocHost allocates pinned memory that is freed when the test ends.
func AllocHost[T cuda.Element](t testing.TB, d *cuda.Device, n int) *cuda.HostBuffer[T] {
	t.Helper()
	b, err := cuda.AllocHost[T](d, n, nil)
	require.NoError(t, err)
	closeAtEnd(t, b)
	return b
}

// Range returns the elements from, up to but not including to, of b.
func Range[T cuda.Element](t testing.TB, b *cuda.Buffer[T], from, to int) *cuda.Buffer[T] {
	t.Helper()
	part, err := b.Range(from, to)
	require.NoError(t, err)
	return part
}

// LoadModule loads an image that is unloaded when the test ends.
func LoadModule(t testing.TB, d *cuda.Device, image []byte) *cuda.Module {
	t.Helper()
	m, err := d.LoadModule(image)
	require.NoError(t, err)
	closeAtEnd(t, m)
	return m
}

// Kernels loads this module's own kernels.
func Kernels(t testing.TB, d *cuda.Device) *cuda.Module {
	t.Helper()
	return LoadModule(t, d, []byte(kernels.PTX))
}

// Kernel returns the kernel of m that has a name.
func Kernel(t testing.TB, m *cuda.Module, name string) *cuda.Kernel {
	t.Helper()
	k, err := m.Kernel(name)
	require.NoError(t, err)
	return k
}

// Capture makes a graph of what f enqueues on s.
func Capture(t testing.TB, s *cuda.Stream, f func()) *cuda.Graph {
	t.Helper()
	g, err := s.Capture(func() error { f(); return nil })
	require.NoError(t, err)
	closeAtEnd(t, g)
	return g
}

// Instantiate makes an executable graph that is closed when the test ends.
func Instantiate(t testing.TB, g *cuda.Graph) *cuda.GraphExec {
	t.Helper()
	x, err := g.Instantiate()
	require.NoError(t, err)
	closeAtEnd(t, x)
	return x
}

// OneThread launches a kernel with one thread.
var OneThread = cuda.Grid1D(1, 1)

// Query asks a stream or an event.
func Query(t testing.TB, q interface{ Query() (bool, error) }) bool {
	t.Helper()
	done, err := q.Query()
	require.NoError(t, err)
	return done
}

// PoolStats asks the memory pool of d.
func PoolStats(t testing.TB, d *cuda.Device) cuda.PoolStats {
	t.Helper()
	pool, err := d.MemoryPool()
	require.NoError(t, err)
	s, err := pool.Stats()
	require.NoError(t, err)
	return s
}

// RandomFloats returns pinned memory with numbers between -1 and 1.
func RandomFloats(t testing.TB, d *cuda.Device, n int) *cuda.HostBuffer[float32] {
	t.Helper()
	b := AllocHost[float32](t, d, n)
	for i := range b.Slice() {
		b.Slice()[i] = 2*rand.Float32() - 1
	}
	return b
}

// StreamCalls calls every method of s that can fail, with an event and another stream, and
// returns the errors.
func StreamCalls(s *cuda.Stream, e *cuda.Event, other *cuda.Stream) map[string]error {
	errs := map[string]error{}
	_, errs["Query"] = s.Query()
	_, errs["Priority"] = s.Priority()
	_, errs["IsCapturing"] = s.IsCapturing()
	_, errs["RecordEvent"] = s.RecordEvent(e)
	errs["WaitEvent"] = s.WaitEvent(e)
	errs["WaitStream"] = s.WaitStream(other)
	errs["Synchronize"] = s.Synchronize()
	if other != nil {
		errs["WaitStream, as the other"] = other.WaitStream(s)
		errs["SynchronizeContext"] = s.SynchronizeContext(context.Background())
	}
	return errs
}
