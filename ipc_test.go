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

	rule(t, "21 a handle of the same process is refused with the reason", 1, func(t *testing.T, b *backend) {
		e := newEvent(t, &cuda.EventOptions{Interprocess: true, Device: b.dev()})
		h, err := e.IPCHandle()
		require.NoError(t, err)
		_, err = b.dev().OpenEvent(h)
		require.ErrorContains(t, err, "same process")
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
	opened, err := here.OpenEvent(h)
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

	child := exec.Command(os.Args[0], "-test.run=^TestOpenedEventChild$", "-test.v")
	child.Env = append(os.Environ(), "PURECUDA_TEST_IPC_HANDLE="+hex.EncodeToString(h[:]))
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer stdin.Close()
	lines := bufio.NewScanner(stdout)
	expect := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "child: ") {
				require.Equal(t, "child: "+want, lines.Text())
				return
			}
		}
		t.Fatalf("the child ended before it said %q", want)
	}
	expect("waiting")
	time.Sleep(soon)
	release()
	expect("released")
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, child.Wait())
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
