package cuda_test

import (
	"encoding/hex"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

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
