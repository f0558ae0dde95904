package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// peers are two simulated processes of one machine: there exports, here opens.
type peers struct {
	gpu         *cudatest.GPU
	there, here *backend
	exporter    *cudatest.Process
}

func newPeers(t testing.TB, c cudatest.Config) *peers {
	t.Helper()
	p := &peers{gpu: cudatest.New(c)}
	t.Cleanup(func() {
		if !t.Failed() {
			p.gpu.Check(t)
		}
	})
	p.exporter = p.gpu.NewProcess()
	p.there, p.here = opened(t, p.exporter.API()), opened(t, p.gpu.NewProcess().API())
	return p
}

func shareable(t testing.TB, d *cuda.Device) *cuda.Event {
	return newEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
}

// shared returns an event of there, as both see it.
func (p *peers) shared(t testing.TB) (theirs, ours *cuda.Event) {
	t.Helper()
	theirs = shareable(t, p.there.dev())
	return theirs, p.open(t, theirs)
}

// process returns the identity of there.
func (p *peers) process(t testing.TB) driver.Process {
	t.Helper()
	self, err := p.there.drv.FindProcess(0)
	require.NoError(t, err)
	return self
}

// open opens an event of there in here, which watches there.
func (p *peers) open(t testing.TB, theirs *cuda.Event) *cuda.Event {
	t.Helper()
	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	e, err := p.here.dev().OpenEvent(h, &cuda.OpenOptions{Exporter: p.process(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// openedBuffer opens memory of there in here.
func openedBuffer[U, T cuda.Element](t testing.TB, p *peers, theirs *cuda.Buffer[T], opts *cuda.OpenOptions) *cuda.Buffer[U] {
	t.Helper()
	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	b, err := cuda.OpenBuffer[U](p.here.dev(), h, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
