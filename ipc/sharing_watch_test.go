package ipc_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/ipc"
)

// Real processes of the system, by which a token of a simulated one is signed.
func TestWatchOfARealProcess(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	here := changed(t, p.here, func(api *driver.API) { api.Processes = nil })
	if _, err := here.drv.FindProcess(0); err != nil {
		t.Skip(err)
	}
	self, err := here.drv.FindProcess(0)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), self.PID)
	for _, pid := range []int{-1, 1<<30 + 1} {
		_, err = here.drv.FindProcess(pid)
		require.ErrorIs(t, err, cuda.ErrPeerGone, pid)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	child := exec.Command(sleep, "60")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	theirs, err := here.drv.FindProcess(child.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, self.Boot, theirs.Boot)

	e := p.event(t)
	token := exported(t, e)
	_, err = ipc.ImportEvent(here.drv, token, nil)
	require.ErrorIs(t, err, cuda.ErrUnreachable, "the simulation's own process")
	token.Process = theirs
	ours := imported(t, here, token)
	s, u := newStream(t, p.there.dev(), nil), newStream(t, here.dev(), nil)
	release := p.gpu.Hold(s)
	require.NoError(t, e.Record(s))
	all := append(waits(t, ours), started(func() error { return ours.WaitAlive(t.Context(), u) }))
	parked(t, here.drv, len(all))
	notTold(t, all...)
	require.NoError(t, child.Process.Kill())
	for _, w := range all {
		require.ErrorIs(t, told(t, w), cuda.ErrPeerGone)
	}
	bereft(t, ours, u)
	_ = child.Wait()
	_, err = ipc.ImportEvent(here.drv, token, nil)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	release()
	require.True(t, query(t, ours))
}

// What the dead process's handle stood for is not what another's with the same bytes
// stands for: the driver's handles hold a PID and a small number, and both are given
// out again.
func TestHandleGivenOutAgain(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	first := exported(t, p.event(t))
	firstMemory := exported(t, alloc[uint32](t, p.there.dev(), 16))
	second := p.gpu.NewProcess()
	var real [2][64]byte // what the first's bytes stand for since
	became := [2][64]byte{first.Handle, firstMemory.Handle}
	died := false
	here := changed(t, p.here, func(api *driver.API) {
		bare := *api
		api.IPCOpenEventHandle = func(h driver.IPCEventHandle) (driver.Event, driver.Result) {
			if died && h == became[0] {
				h = real[0]
			}
			return bare.IPCOpenEventHandle(h)
		}
		api.IPCOpenMemHandle = func(h driver.IPCMemHandle, flags uint32) (driver.DevicePtr, driver.Result) {
			if died && h == became[1] {
				h = real[1]
			}
			return bare.IPCOpenMemHandle(h, flags)
		}
	})
	old, oldMemory := imported(t, here, first), importedBuffer[uint32](t, here, firstMemory)
	p.exporter.Kill()

	there := opened(t, second.API())
	e, buf := shareable(t, there.dev()), alloc[uint32](t, there.dev(), 16)
	token, memory := exported(t, e), exported(t, buf)
	real[0], real[1] = token.Handle, memory.Handle
	token.Handle, memory.Handle, died = became[0], became[1], true

	ours := imported(t, here, token)
	require.NotEqual(t, native(t, old), native(t, ours), "the event of the process that lives")
	s := newStream(t, there.dev(), nil)
	release := p.gpu.Hold(s)
	releasedAtEnd(t, release)
	require.NoError(t, e.Record(s))
	require.False(t, query(t, ours))
	release()
	require.NoError(t, ours.Synchronize())
	words := importedBuffer[uint32](t, here, memory)
	require.NotEqual(t, oldMemory.Pointer(), words.Pointer(), "the memory of the process that lives")
}

func TestWatchesEnd(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	token, another := exported(t, p.event(t)), exported(t, p.event(t))
	for range 3 {
		a, err := ipc.ImportEvent(p.here.drv, token, nil)
		require.NoError(t, err)
		again, err := ipc.ImportEvent(p.here.drv, token, nil)
		require.NoError(t, err)
		b, err := ipc.ImportEvent(p.here.drv, another, nil)
		require.NoError(t, err)
		byHandle, err := p.here.dev().OpenEvent(token.Handle, nil)
		require.NoError(t, err)
		for _, e := range []*cuda.Event{a, b, again} {
			require.Equal(t, 1, p.ledger.watches(), "one for all")
			require.NoError(t, e.Close())
			require.NoError(t, e.Close())
		}
		require.Zero(t, p.ledger.watches())
		require.NoError(t, byHandle.Close())
	}
	require.Equal(t, 3, p.ledger.ever)

	// Memory needs none: it outlives its process.
	words := importedBuffer[byte](t, p.here, exported(t, alloc[byte](t, p.there.dev(), 8)))
	require.Zero(t, p.ledger.watches())
	require.NoError(t, words.Close())

	// Nor does one's own.
	own := imported(t, p.there, token)
	require.True(t, query(t, own))

	// A watch that cannot begin fails the import, and no later one.
	failing := true
	broken := changed(t, p.here, func(api *driver.API) {
		bare := *api.Processes
		api.Processes = &driver.Processes{Find: bare.Find, Watch: func(q driver.Process, dying, gone func()) (func(), error) {
			if failing {
				return nil, os.ErrNotExist
			}
			return bare.Watch(q, dying, gone)
		}}
	})
	_, err := ipc.ImportEvent(broken.drv, token, nil)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: event import: ")
	failing = false
	later, err := ipc.ImportEvent(broken.drv, token, nil)
	require.NoError(t, err)
	require.NoError(t, later.Close())
	p.ledger.balanced(t)
}

// An exporter that is already dying, and not yet gone, when its event is imported.
func TestImportFromADyingProcess(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	t.Cleanup(p.exporter.Kill)
	e := p.event(t)
	s, u := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil)
	p.gpu.Hold(s)
	require.NoError(t, e.Record(s))
	token := exported(t, e)
	p.exporter.BeginKill()
	ours, err := ipc.ImportEvent(p.here.drv, token, nil)
	if err != nil {
		require.ErrorIs(t, err, cuda.ErrPeerGone)
	} else {
		bereft(t, ours, u)
		require.NoError(t, ours.Close())
	}
	require.Zero(t, p.ledger.watches())
}

// The exporter hardly notices when an importer dies.
func TestImporterOfEventsDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		t.Cleanup(func() { gpu.Check(t) })
		there := opened(t, gpu.API())
		victim := gpu.NewProcess()
		here, err := cuda.OpenDriver(victim.API())
		require.NoError(t, err)
		b := &backend{drv: here}
		d, err := here.OpenDevice(0)
		require.NoError(t, err)
		b.devices = append(b.devices, d)

		e, buf := shareable(t, there.dev()), alloc[uint32](t, there.dev(), 16)
		s := newStream(t, there.dev(), nil)
		gpu.Run(s, time.Hour)
		require.NoError(t, cuda.Fill(s, buf, 7))
		require.NoError(t, e.Record(s))
		ours, words := imported(t, b, exported(t, e)), importedBuffer[uint32](t, b, exported(t, buf))
		u := newStream(t, d, nil)
		gpu.Run(u, 2*time.Hour)
		require.NoError(t, cuda.Fill(u, words, 8))
		require.NoError(t, ours.Wait(u))
		wait := started(ours.Synchronize)
		synctest.Wait()
		victim.Kill()
		require.ErrorIs(t, told(t, wait), driver.ErrorDeinitialized)
		began := time.Now()
		require.NoError(t, e.Synchronize())
		onTime(t, began, time.Hour)
		holds(t, s, buf, 7)
		require.NoError(t, there.dev().Synchronize())
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize())
	})
}

// Beginning to watch a process may take long: that holds up nobody else.
func TestWatchBeginsSlowly(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	event, memory := exported(t, p.event(t)), exported(t, alloc[uint32](t, p.there.dev(), 16))
	begin, begun := make(chan struct{}), make(chan struct{})
	beginning := sync.OnceFunc(func() { close(begun) })
	here := changed(t, p.here, func(api *driver.API) {
		bare := api.Processes
		api.Processes = &driver.Processes{Find: bare.Find, Watch: func(q driver.Process, dying, gone func()) (func(), error) {
			beginning()
			<-begin
			return bare.Watch(q, dying, gone)
		}}
	})
	var importing []<-chan error
	for range 3 {
		importing = append(importing, started(func() error {
			e, err := ipc.ImportEvent(here.drv, event, nil)
			if err != nil {
				return err
			}
			return e.Close()
		}))
	}
	<-begun
	importedBuffer[uint32](t, here, memory)
	notTold(t, importing...)
	close(begin)
	for _, c := range importing {
		require.NoError(t, told(t, c))
	}
	require.Zero(t, p.ledger.watches())
}
