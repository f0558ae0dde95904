package cuda_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

func TestIPCRules(t *testing.T) {
	rule(t, "21 exporting makes the event on the given device", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: b.dev()})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		require.NotZero(t, h)
		require.Same(t, b.dev(), e.Device())
		require.True(t, query(t, e))
		require.NoError(t, e.Record(newStream(t, b.dev(), nil)))
	})

	rule(t, "21 an ordinary event has no handle, and says so", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, nil)
		require.NoError(t, e.Record(newStream(t, b.dev(), nil)))
		_, err := e.IPCHandle()
		require.ErrorIs(t, err, cuda.ErrNotInterprocess)
	})

	rule(t, "21 handles of a wrong size or of garbage are errors", 1, func(t *testing.T, b *backend) {
		for _, size := range []int{0, 63, 65} {
			_, err := cuda.EventFromIPCHandle(b.dev(), make([]byte, size))
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, "64 bytes")
			require.ErrorContains(t, err, fmt.Sprintf("this has %d", size))
		}
		_, err := cuda.EventFromIPCHandle(nil, make([]byte, 64))
		require.ErrorIs(t, err, cuda.ErrInvalid)
		random := make([]byte, 64)
		for range 100 {
			for i := range random {
				random[i] = byte(rand.Uint32())
			}
			_, err := cuda.EventFromIPCHandle(b.dev(), random)
			require.Error(t, err)
		}
	})

	rule(t, "21 a handle of the same process is of the same event", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: b.dev()})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		same, err := b.dev().OpenEvent(h, nil)
		require.NoError(t, err)
		require.NotSame(t, e, same)
		require.Equal(t, native(t, e), native(t, same))
		require.NoError(t, e.Close())
		require.True(t, query(t, same))
		again, err := same.IPCHandle()
		require.NoError(t, err)
		require.Equal(t, h, again)
		require.NoError(t, same.Close())
		_, err = b.dev().OpenEvent(h, nil)
		require.Error(t, err, "it is closed")
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

	e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: there})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	opened, err := here.OpenEvent(h, nil)
	require.NoError(t, err)
	defer opened.Close()

	s := newStream(t, there, nil)
	release := hold(t, s)
	require.NoError(t, e.Record(s))
	require.False(t, query(t, opened))
	local := newStream(t, here, nil)
	require.NoError(t, local.WaitEvent(opened))
	require.False(t, query(t, local))
	release()
	require.NoError(t, local.Synchronize())
	require.True(t, query(t, opened))
	_, err = opened.ElapsedTime(opened)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
	require.NoError(t, opened.Record(local), "the importer may record it")
	require.NoError(t, e.Synchronize())
}

// The importer's view, between two real processes: the parent holds a stream,
// records its event and lets the child's stream wait for it.
func TestOpenedEventReal(t *testing.T) {
	drv := realDriver(t)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	s := newStream(t, d, nil)
	release := hold(t, s)
	require.NoError(t, e.Record(s))

	child := startChild(t, nil, "PURECUDA_TEST_IPC_HANDLE="+hex.EncodeToString(h[:]), os.Args[0], "-test.run=^TestOpenedEventChild$", "-test.v")
	require.Equal(t, "waiting", child.says())
	time.Sleep(soon)
	release()
	require.Equal(t, "released", child.says())
	child.end()
}

// The same with PyTorch in the other process, and the reverse: PyTorch's event,
// opened here.
func TestOpenedEventPyTorch(t *testing.T) {
	drv := realDriver(t)
	if err := exec.Command("python3", "-c", "import torch").Run(); err != nil {
		t.Skip("python3 with torch is not here")
	}
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: d})
	h, err := e.IPCHandle()
	require.NoError(t, err)
	s := newStream(t, d, nil)
	release := hold(t, s)
	require.NoError(t, e.Record(s))

	child := startChild(t, strings.NewReader(torchScript), "PURECUDA_TEST_IPC_HANDLE="+hex.EncodeToString(h[:]), "python3", "-")
	require.Equal(t, "waiting", child.says())
	time.Sleep(soon)
	release()
	require.Equal(t, "released", child.says())
	theirs, err := hex.DecodeString(child.says())
	require.NoError(t, err)
	opened, err := cuda.EventFromIPCHandle(d, theirs)
	require.NoError(t, err)
	defer opened.Close()
	require.False(t, query(t, opened), "PyTorch's stream is busy")
	require.NoError(t, opened.Wait(s))
	require.NoError(t, opened.SynchronizeContext(t.Context()))
	require.NoError(t, s.Synchronize())
	child.end()
}

// torchScript waits for the event that it is given, and then shares one of its
// own, recorded behind half a second of work.
const torchScript = `
import os, torch
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
import time; time.sleep(1)  # the event must outlive its use by the parent
`

// child is another process that prints lines for its parent.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	out   io.Reader
}

func startChild(t *testing.T, stdin io.Reader, env string, name string, args ...string) *child {
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), name, args...)}
	c.cmd.Env = append(os.Environ(), env)
	c.cmd.Stdin = stdin
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.out, c.lines = out, bufio.NewScanner(out)
	return c
}

// says returns the child's next line for its parent.
func (c *child) says() string {
	c.t.Helper()
	for c.lines.Scan() {
		if text, ok := strings.CutPrefix(c.lines.Text(), "child: "); ok {
			return text
		}
	}
	c.t.Fatal("the child has ended")
	return ""
}

func (c *child) end() {
	_, _ = io.Copy(io.Discard, c.out)
	require.NoError(c.t, c.cmd.Wait())
}

func TestOpenedEventChild(t *testing.T) {
	handle, err := hex.DecodeString(os.Getenv("PURECUDA_TEST_IPC_HANDLE"))
	if err != nil || len(handle) == 0 {
		t.Skip("runs as the child of TestOpenedEventReal")
	}
	d, err := realDriver(t).OpenDevice(0)
	require.NoError(t, err)
	e, err := cuda.EventFromIPCHandle(d, handle)
	require.NoError(t, err)
	defer e.Close()
	s := newStream(t, d, nil)
	require.False(t, query(t, e))
	require.NoError(t, s.WaitEvent(e))
	require.False(t, query(t, s))
	_, err = e.ElapsedTime(e)
	require.ErrorIs(t, err, cuda.ErrNotTimed)
	fmt.Println("child: waiting")
	require.NoError(t, s.Synchronize())
	fmt.Println("child: released")
	require.NoError(t, e.Record(s), "the importer may record it")
	require.NoError(t, e.Synchronize())
}
