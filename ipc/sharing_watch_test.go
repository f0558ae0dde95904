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
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// Real processes of the system, by which a token of a simulated one is signed.
func TestWatchOfARealProcess(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	here := testgpu.Modified(t, p.Here, func(api *driver.API) { api.Processes = nil })
	if _, err := here.Driver.FindProcess(0); err != nil {
		t.Skip(err)
	}
	self, err := here.Driver.FindProcess(0)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), self.PID)
	for _, pid := range []int{-1, 1<<30 + 1} {
		_, err = here.Driver.FindProcess(pid)
		require.ErrorIs(t, err, cuda.ErrPeerGone, pid)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	child := exec.Command(sleep, "60")
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	theirs, err := here.Driver.FindProcess(child.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, self.Boot, theirs.Boot)

	e := p.event(t)
	token := exported(t, e)
	_, err = ipc.ImportEvent(here.Driver, token, nil)
	require.ErrorIs(t, err, cuda.ErrUnreachable, "the simulation's own process")
	token.Process = theirs
	ours := imported(t, here, token)
	s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, here.Device(), nil)
	release := p.GPU.Hold(s)
	require.NoError(t, e.Record(s))
	all := append(testgpu.Waits(t, ours), testgpu.Go(func() error { return ours.WaitAlive(t.Context(), u) }))
	testgpu.Parked(t, here.Driver, len(all))
	testgpu.NotReady(t, all...)
	require.NoError(t, child.Process.Kill())
	for _, w := range all {
		require.ErrorIs(t, testgpu.Receive(t, w), cuda.ErrPeerGone)
	}
	requirePeerGone(t, ours, u)
	_ = child.Wait()
	_, err = ipc.ImportEvent(here.Driver, token, nil)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	release()
	require.True(t, testgpu.Query(t, ours))
}

// What the dead process's handle stood for is not what another's with the same bytes
// stands for: the driver's handles hold a PID and a small number, and both are given
// out again.
func TestHandleGivenOutAgain(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	first := exported(t, p.event(t))
	firstMemory := exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	second := p.GPU.NewProcess()
	var real [2][64]byte // what the first's bytes stand for since
	became := [2][64]byte{first.Handle, firstMemory.Handle}
	died := false
	here := testgpu.Modified(t, p.Here, func(api *driver.API) {
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
	p.Exporter.Kill()

	there := testgpu.Open(t, second.API())
	e, buf := testgpu.NewSharedEvent(t, there.Device()), testgpu.Alloc[uint32](t, there.Device(), 16)
	token, memory := exported(t, e), exported(t, buf)
	real[0], real[1] = token.Handle, memory.Handle
	token.Handle, memory.Handle, died = became[0], became[1], true

	ours := imported(t, here, token)
	require.NotEqual(t, testgpu.NativeEvent(t, old), testgpu.NativeEvent(t, ours), "the event of the process that lives")
	s := testgpu.NewStream(t, there.Device(), nil)
	release := p.GPU.Hold(s)
	testgpu.ReleaseAtEnd(t, release)
	require.NoError(t, e.Record(s))
	require.False(t, testgpu.Query(t, ours))
	release()
	require.NoError(t, ours.Synchronize())
	words := importedBuffer[uint32](t, here, memory)
	require.NotEqual(t, oldMemory.Pointer(), words.Pointer(), "the memory of the process that lives")
}

func TestWatchesEnd(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	token, another := exported(t, p.event(t)), exported(t, p.event(t))
	for range 3 {
		a, err := ipc.ImportEvent(p.Here.Driver, token, nil)
		require.NoError(t, err)
		again, err := ipc.ImportEvent(p.Here.Driver, token, nil)
		require.NoError(t, err)
		b, err := ipc.ImportEvent(p.Here.Driver, another, nil)
		require.NoError(t, err)
		byHandle, err := p.Here.Device().OpenEvent(token.Handle, nil)
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
	words := importedBuffer[byte](t, p.Here, exported(t, testgpu.Alloc[byte](t, p.There.Device(), 8)))
	require.Zero(t, p.ledger.watches())
	require.NoError(t, words.Close())

	// Nor does one's own.
	own := imported(t, p.There, token)
	require.True(t, testgpu.Query(t, own))

	// A watch that cannot begin fails the import, and no later one.
	failing := true
	broken := testgpu.Modified(t, p.Here, func(api *driver.API) {
		bare := *api.Processes
		api.Processes = &driver.Processes{Find: bare.Find, Watch: func(q driver.Process, dying, gone func()) (func(), error) {
			if failing {
				return nil, os.ErrNotExist
			}
			return bare.Watch(q, dying, gone)
		}}
	})
	_, err := ipc.ImportEvent(broken.Driver, token, nil)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: event import: ")
	failing = false
	later, err := ipc.ImportEvent(broken.Driver, token, nil)
	require.NoError(t, err)
	require.NoError(t, later.Close())
	p.ledger.balanced(t)
}

// An exporter that is already dying, and not yet gone, when its event is imported.
func TestImportFromADyingProcess(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	t.Cleanup(p.Exporter.Kill)
	e := p.event(t)
	s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
	p.GPU.Hold(s)
	require.NoError(t, e.Record(s))
	token := exported(t, e)
	p.Exporter.BeginKill()
	ours, err := ipc.ImportEvent(p.Here.Driver, token, nil)
	if err != nil {
		require.ErrorIs(t, err, cuda.ErrPeerGone)
	} else {
		requirePeerGone(t, ours, u)
		require.NoError(t, ours.Close())
	}
	require.Zero(t, p.ledger.watches())
}

// The exporter hardly notices when an importer dies.
func TestImporterOfEventsDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		t.Cleanup(func() { gpu.Check(t) })
		there := testgpu.Open(t, gpu.API())
		victim := gpu.NewProcess()
		here, err := cuda.OpenDriver(victim.API())
		require.NoError(t, err)
		b := &testgpu.Backend{Driver: here}
		d, err := here.OpenDevice(0)
		require.NoError(t, err)
		b.Devices = append(b.Devices, d)

		e, buf := testgpu.NewSharedEvent(t, there.Device()), testgpu.Alloc[uint32](t, there.Device(), 16)
		s := testgpu.NewStream(t, there.Device(), nil)
		gpu.Run(s, time.Hour)
		require.NoError(t, cuda.Fill(s, buf, 7))
		require.NoError(t, e.Record(s))
		ours, words := imported(t, b, exported(t, e)), importedBuffer[uint32](t, b, exported(t, buf))
		u := testgpu.NewStream(t, d, nil)
		gpu.Run(u, 2*time.Hour)
		require.NoError(t, cuda.Fill(u, words, 8))
		require.NoError(t, ours.Wait(u))
		wait := testgpu.Go(ours.Synchronize)
		synctest.Wait()
		victim.Kill()
		require.ErrorIs(t, testgpu.Receive(t, wait), driver.ErrorDeinitialized)
		began := time.Now()
		require.NoError(t, e.Synchronize())
		testgpu.OnTime(t, began, time.Hour)
		testgpu.RequireFilled(t, s, buf, 7)
		require.NoError(t, there.Device().Synchronize())
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize())
	})
}

// Beginning to watch a process may take long: that holds up nobody else.
func TestWatchBeginsSlowly(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	event, memory := exported(t, p.event(t)), exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	begin, begun := make(chan struct{}), make(chan struct{})
	beginning := sync.OnceFunc(func() { close(begun) })
	here := testgpu.Modified(t, p.Here, func(api *driver.API) {
		bare := api.Processes
		api.Processes = &driver.Processes{Find: bare.Find, Watch: func(q driver.Process, dying, gone func()) (func(), error) {
			beginning()
			<-begin
			return bare.Watch(q, dying, gone)
		}}
	})
	var importing []<-chan error
	for range 3 {
		importing = append(importing, testgpu.Go(func() error {
			e, err := ipc.ImportEvent(here.Driver, event, nil)
			if err != nil {
				return err
			}
			return e.Close()
		}))
	}
	<-begun
	importedBuffer[uint32](t, here, memory)
	testgpu.NotReady(t, importing...)
	close(begin)
	for _, c := range importing {
		require.NoError(t, testgpu.Receive(t, c))
	}
	require.Zero(t, p.ledger.watches())
}
