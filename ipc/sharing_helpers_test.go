package ipc_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// peers are two simulated processes of one machine. What Here opens is counted.
type peers struct {
	*testgpu.Peers
	ledger *ledger // of Here
}

func newPeers(t testing.TB, c cudatest.Config) *peers {
	t.Helper()
	return newPeersWith(t, c, cudatest.ProcessConfig{}, cudatest.ProcessConfig{})
}

func newPeersWith(t testing.TB, c cudatest.Config, there, here cudatest.ProcessConfig) *peers {
	t.Helper()
	p := &peers{ledger: newLedger()}
	p.Peers = testgpu.NewPeersWith(t, c, there, here, p.ledger.install)
	return p
}

// event makes an event that can be shared, of the first device of There.
func (p *peers) event(t testing.TB) *cuda.Event { return testgpu.NewSharedEvent(t, p.There.Device()) }

// shared returns an event of There, as both see it, imported by a token.
func (p *peers) shared(t testing.TB) (theirs, ours *cuda.Event) {
	t.Helper()
	theirs = p.event(t)
	return theirs, imported(t, p.Here, exported(t, theirs))
}

func imported(t testing.TB, b *testgpu.Backend, token ipc.Token) *cuda.Event {
	t.Helper()
	e, err := ipc.ImportEvent(b.Driver, token, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func importedBuffer[T cuda.Element](t testing.TB, b *testgpu.Backend, token ipc.Token) *cuda.Buffer[T] {
	t.Helper()
	buf, err := ipc.ImportBuffer[T](b.Driver, token, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, buf.Close()) })
	return buf
}

func exported(t testing.TB, x ipc.Shared) ipc.Token {
	t.Helper()
	token, err := export(x)
	require.NoError(t, err)
	return token
}

func export(x ipc.Shared) (ipc.Token, error) {
	switch x := x.(type) {
	case *cuda.Buffer[byte]:
		return ipc.ExportBuffer(x)
	case *cuda.Buffer[uint32]:
		return ipc.ExportBuffer(x)
	case *cuda.Buffer[float64]:
		return ipc.ExportBuffer(x)
	}
	return ipc.ExportEvent(x.(*cuda.Event))
}

// ledger counts what a process opens of others, and whom it watches.
type ledger struct {
	mu             sync.Mutex
	open           map[uint64]int
	opens, closes  int
	watching, ever int
}

func newLedger() *ledger { return &ledger{open: map[uint64]int{}} }

// kept opens the driver of a process with a ledger.
func kept(t testing.TB, table *driver.API) (*testgpu.Backend, *ledger) {
	t.Helper()
	api, l := *table, newLedger()
	l.install(&api)
	return testgpu.Open(t, &api), l
}

func (l *ledger) install(api *driver.API) {
	bare := *api
	opened := func(native uint64, r driver.Result) {
		if r == driver.Success {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.open[native]++
			l.opens++
		}
	}
	closed := func(native uint64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[native] > 0 {
			l.open[native]--
			l.closes++
		}
	}
	api.IPCOpenEventHandle = func(h driver.IPCEventHandle) (driver.Event, driver.Result) {
		e, r := bare.IPCOpenEventHandle(h)
		opened(uint64(e), r)
		return e, r
	}
	api.EventDestroy = func(e driver.Event) driver.Result {
		closed(uint64(e))
		return bare.EventDestroy(e)
	}
	api.IPCOpenMemHandle = func(h driver.IPCMemHandle, flags uint32) (driver.DevicePtr, driver.Result) {
		p, r := bare.IPCOpenMemHandle(h, flags)
		opened(uint64(p), r)
		return p, r
	}
	api.IPCCloseMemHandle = func(p driver.DevicePtr) driver.Result {
		r := bare.IPCCloseMemHandle(p)
		closed(uint64(p))
		return r
	}
	if bare.Processes == nil {
		return
	}
	api.Processes = &driver.Processes{Find: bare.Processes.Find}
	api.Processes.Watch = func(p driver.Process, dying, gone func()) (func(), error) {
		stop, err := bare.Processes.Watch(p, dying, gone)
		if err != nil {
			return nil, err
		}
		l.watch(1)
		return func() { stop(); l.watch(-1) }, nil
	}
}

func (l *ledger) watch(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watching += n
	l.ever += max(n, 0)
}

func (l *ledger) watches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watching
}

// requireOpens wants so many to have been opened and closed so far.
func (l *ledger) requireOpens(t testing.TB, opens, closes int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, [2]int{opens, closes}, [2]int{l.opens, l.closes}, "opened and closed")
}

func (l *ledger) balanced(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, l.opens, l.closes, "opened and closed")
}

// fillNow fills a buffer by its own process, and waits.
func fillNow(t testing.TB, b *cuda.Buffer[uint32], v uint32) {
	t.Helper()
	s := testgpu.NewStream(t, b.Device(), nil)
	require.NoError(t, cuda.Fill(s, b, v))
	require.NoError(t, s.Synchronize())
}
