package cuda_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// An event whose handle was given out can be forgotten like any other, also if it was opened
// here by that handle. Whoever has opened it keeps it.
func TestForgottenEventsWithHandles(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	make := func() *cuda.Event {
		e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: d})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		again, err := d.OpenEvent(h, nil)
		require.NoError(t, err)
		require.Equal(t, e.Handle(), again.Handle())
		return again
	}
	again := make()
	for range 5 {
		runtime.GC()
	}
	require.NoError(t, again.Record(s))
	require.NoError(t, again.Synchronize())
	h, err := again.IPCHandle()
	require.NoError(t, err)
	require.NoError(t, again.Close())
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Streams: 1, Forgotten: 1} })
	testgpu.CollectUntil(t, func() bool { _, err := d.OpenEvent(h, nil); return err != nil }) // it was destroyed

	make() // neither was closed
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Streams: 1, Forgotten: 3} })
}

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

// The importer's view, between two simulated processes.
func TestOpenedEventSimulated(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	exporter, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	importer, err := cuda.OpenDriver(gpu.NewProcess().API())
	require.NoError(t, err)
	there, err := exporter.OpenDevice(0)
	require.NoError(t, err)
	here, err := importer.OpenDevice(0)
	require.NoError(t, err)

	e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: there})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	opened, err := here.OpenEvent(h, nil)
	require.NoError(t, err)
	defer opened.Close()

	s := testgpu.NewStream(t, there, nil)
	release := testgpu.Hold(t, s)
	require.NoError(t, e.Record(s))
	require.False(t, testgpu.Query(t, opened))
	local := testgpu.NewStream(t, here, nil)
	require.NoError(t, local.WaitEvent(opened))
	require.False(t, testgpu.Query(t, local))
	release()
	require.NoError(t, local.Synchronize())
	require.True(t, testgpu.Query(t, opened))
	_, err = opened.ElapsedTime(opened)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
	require.NoError(t, opened.Record(local), "the importer may record it")
	require.NoError(t, e.Synchronize())
}

// The importer's view, between two real processes: the parent holds a stream,
// records its event and lets the child's stream wait for it.
func TestOpenedEventReal(t *testing.T) {
	drv := testgpu.RealDriver(t)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	s := testgpu.NewStream(t, d, nil)
	release := testgpu.Hold(t, s)
	require.NoError(t, e.Record(s))

	child := testgpu.StartSelf(t, "TestOpenedEventChild", "PURECUDA_TEST_IPC_HANDLE="+hex.EncodeToString(h[:]))
	require.Equal(t, "waiting", child.Says())
	time.Sleep(testgpu.Soon)
	release()
	require.Equal(t, "released", child.Says())
	child.End()
}

// The same with PyTorch in the other process, and the reverse: PyTorch's event,
// opened here.
func TestOpenedEventPyTorch(t *testing.T) {
	drv := testgpu.RealDriver(t)
	if err := exec.Command("python3", "-c", "import torch").Run(); err != nil {
		t.Skip("python3 with torch is not here")
	}
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	e := testgpu.NewEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	s := testgpu.NewStream(t, d, nil)
	release := testgpu.Hold(t, s)
	require.NoError(t, e.Record(s))

	python := exec.CommandContext(t.Context(), "python3", "-c", torchScript)
	python.Env = append(os.Environ(), "PURECUDA_TEST_IPC_HANDLE="+hex.EncodeToString(h[:]))
	child := testgpu.StartChild(t, python)
	require.Equal(t, "waiting", child.Says())
	time.Sleep(testgpu.Soon)
	release()
	require.Equal(t, "released", child.Says())
	theirs, err := hex.DecodeString(child.Says())
	require.NoError(t, err)
	opened, err := cuda.EventFromIPCHandle(d, theirs)
	require.NoError(t, err)
	defer opened.Close()
	require.False(t, testgpu.Query(t, opened), "PyTorch's stream is busy")
	require.NoError(t, opened.Wait(s))
	require.NoError(t, opened.SynchronizeContext(t.Context()))
	require.NoError(t, s.Synchronize())
	child.End()
}

// torchScript waits for the event that it is given, and then shares one of its
// own, recorded behind half a second of work.
const torchScript = `
import os, sys, torch
def say(text): print("child: " + text, flush=True)
device = torch.device("cuda", 0)
s = torch.cuda.Stream(device)
e = torch.cuda.Event.from_ipc_handle(device, bytes.fromhex(os.environ["PURECUDA_TEST_IPC_HANDLE"]))
assert not e.query()
e.wait(s)
assert not s.query()
say("waiting")
s.synchronize()
assert e.query()
say("released")
own = torch.cuda.Event(interprocess=True)
with torch.cuda.stream(s):
    torch.cuda._sleep(1_000_000_000)
    own.record(s)
say(own.ipc_handle().hex())
s.synchronize()
sys.stdin.read()  # the event must outlive its use by the parent
`

func TestOpenedEventChild(t *testing.T) {
	handle, err := hex.DecodeString(os.Getenv("PURECUDA_TEST_IPC_HANDLE"))
	if err != nil || len(handle) == 0 {
		t.Skip("runs as the child of TestOpenedEventReal")
	}
	d, err := testgpu.RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	e, err := cuda.EventFromIPCHandle(d, handle)
	require.NoError(t, err)
	defer e.Close()
	s := testgpu.NewStream(t, d, nil)
	require.False(t, testgpu.Query(t, e))
	require.NoError(t, s.WaitEvent(e))
	require.False(t, testgpu.Query(t, s))
	_, err = e.ElapsedTime(e)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
	testgpu.Say("waiting")
	require.NoError(t, s.Synchronize())
	testgpu.Say("released")
	require.NoError(t, e.Record(s), "the importer may record it")
	require.NoError(t, e.Synchronize())
}
