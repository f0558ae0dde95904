package testgpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// Peers are two simulated processes of one machine: There exports, Here opens.
type Peers struct {
	GPU         *cudatest.GPU
	There, Here *Backend
	Exporter    *cudatest.Process
}

// NewPeers starts two processes on one GPU.
func NewPeers(t testing.TB, c cudatest.Config) *Peers {
	t.Helper()
	return NewPeersWith(t, c, cudatest.ProcessConfig{}, cudatest.ProcessConfig{}, func(*driver.API) {})
}

// NewPeersWith starts two processes of a kind each. change modifies the table of here.
func NewPeersWith(t testing.TB, c cudatest.Config, there, here cudatest.ProcessConfig, change func(*driver.API)) *Peers {
	t.Helper()
	p := &Peers{GPU: cudatest.New(c)}
	t.Cleanup(func() {
		if !t.Failed() {
			p.GPU.Check(t)
		}
	})
	p.Exporter = p.GPU.NewProcessWith(there)
	p.There = Open(t, p.Exporter.API())
	api := *p.GPU.NewProcessWith(here).API()
	change(&api)
	p.Here = Open(t, &api)
	return p
}

// Process returns the identity of There.
func (p *Peers) Process(t testing.TB) driver.Process {
	t.Helper()
	self, err := p.There.Driver.FindProcess(0)
	require.NoError(t, err)
	return self
}

// Shared returns a new event of There, as both see it. Here watches There.
func (p *Peers) Shared(t testing.TB) (theirs, ours *cuda.Event) {
	t.Helper()
	theirs = NewSharedEvent(t, p.There.Device())
	return theirs, p.Open(t, theirs)
}

// Open opens an event of There in Here, which watches There.
func (p *Peers) Open(t testing.TB, theirs *cuda.Event) *cuda.Event {
	t.Helper()
	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	e, err := p.Here.Device().OpenEvent(h, &cuda.OpenOptions{Exporter: p.Process(t)})
	require.NoError(t, err)
	closeAtEnd(t, e)
	return e
}

// OpenBuffer opens memory of There in Here.
func OpenBuffer[U, T cuda.Element](t testing.TB, p *Peers, theirs *cuda.Buffer[T], opts *cuda.OpenOptions) *cuda.Buffer[U] {
	t.Helper()
	h, err := theirs.IPCHandle()
	require.NoError(t, err)
	b, err := cuda.OpenBuffer[U](p.Here.Device(), h, opts)
	require.NoError(t, err)
	closeAtEnd(t, b)
	return b
}
