package ipc_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// hand does what it is asked, one thing at a time: a worker of this process, or the
// one of another.
type hand interface {
	do(command ...string) (string, error)
}

// tells has h do something that must work, and returns what it answers.
func tells(t testing.TB, h hand, command ...string) string {
	t.Helper()
	answer, err := h.do(command...)
	require.NoError(t, err, "%v", command)
	return answer
}

// shareSize is how many elements workers share.
const shareSize = 1 << 20

// worker has a stream, and an event and memory that it has made or imported.
type worker struct {
	d          *cuda.Device
	s          *cuda.Stream
	fill, spin *cuda.Kernel
	word       *cuda.HostBuffer[uint32] // of what holds the stream
	out        *cuda.HostBuffer[uint32]
	own, buf   *cuda.Buffer[uint32]
	event      *cuda.Event
	closers    []func() error
	held       uint32
}

func newWorker(d *cuda.Device) (w *worker, err error) {
	w = &worker{d: d}
	var m *cuda.Module
	for _, f := range []func() error{
		func() error { w.s, err = d.NewStream(nil); return err },
		func() error { m, err = d.LoadModule([]byte(kernels.PTX)); return err },
		func() error { w.fill, err = m.Kernel("purecuda_fill"); return err },
		func() error { w.spin, err = m.Kernel("purecuda_spin"); return err },
		func() error { w.word, err = cuda.AllocHost[uint32](d, 1, nil); return err },
		func() error { w.out, err = cuda.AllocHost[uint32](d, shareSize, nil); return err },
		func() error { w.own, err = cuda.Alloc[uint32](d, shareSize); return err },
		func() error { return w.launchFill(w.own, 0) }, // so that later launches load nothing
		func() error { return w.launchSpin(1) },
		func() error { return w.s.Synchronize() },
	} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	atomic.StoreUint32(&w.word.Slice()[0], 0)
	w.closers = []func() error{w.own.Close, w.out.Close, w.word.Close, m.Close, w.s.Close}
	return w, nil
}

// localWorker is a worker of this process.
func localWorker(t *testing.T, d *cuda.Device) *worker {
	t.Helper()
	w, err := newWorker(d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	return w
}

func (w *worker) close() (err error) {
	atomic.StoreUint32(&w.word.Slice()[0], w.held)
	for _, f := range append([]func() error{w.drop}, w.closers...) {
		err = errors.Join(err, f())
	}
	return err
}

// drop closes the event and the memory, of whomever they are.
func (w *worker) drop() error {
	var b *cuda.Buffer[uint32]
	if w.buf != w.own {
		b = w.buf
	}
	err := errors.Join(w.event.Close(), b.Close())
	w.event, w.buf = nil, nil
	return err
}

func (w *worker) launchFill(b *cuda.Buffer[uint32], v uint32) error {
	return w.fill.Launch(w.s, cuda.Grid1D(shareSize, 256), b, uint64(shareSize), v)
}

func (w *worker) launchSpin(d time.Duration) error {
	return w.spin.Launch(w.s, cuda.Grid1D(1, 1), uint64(d))
}

func (w *worker) do(command ...string) (string, error) {
	argument := func(i int) string {
		if i < len(command) {
			return command[i]
		}
		return ""
	}
	number, _ := strconv.ParseUint(argument(1), 10, 32)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch command[0] {
	case "make": // an event and memory to share
		w.event, w.buf = cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: w.d}), w.own
		return "", nil
	case "export":
		return w.export(argument(1), argument(2))
	case "import":
		return "", w.open(argument(1), argument(2), argument(3))
	case "drop":
		return "", w.drop()
	case "hold": // the stream, until release
		w.held++
		return "", w.s.WaitValue(w.word, w.held)
	case "release":
		atomic.StoreUint32(&w.word.Slice()[0], w.held)
		return "", nil
	case "spin": // for milliseconds
		return "", w.launchSpin(time.Duration(number) * time.Millisecond)
	case "fill":
		return "", w.launchFill(w.buf, uint32(number))
	case "record":
		return "", w.event.Record(w.s)
	case "wait":
		return "", w.event.Wait(w.s)
	case "copy":
		clear(w.out.Slice())
		return "", cuda.Copy(w.s, w.out, w.buf)
	case "query": // the event, and the stream
		event, err := w.event.Query()
		stream, err2 := w.s.Query()
		return fmt.Sprint(event, stream), errors.Join(err, err2)
	case "await":
		return "", w.event.SynchronizeContext(ctx)
	case "sync":
		return "", w.s.SynchronizeContext(ctx)
	case "check": // what was copied
		for i, v := range w.out.Slice() {
			if v != uint32(number) {
				return "", fmt.Errorf("element %d is %d, and not %d", i, v, number)
			}
		}
		return "", nil
	}
	return "", fmt.Errorf("there is no command %v", command)
}

func (w *worker) export(what, form string) (string, error) {
	token, err := ipc.ExportEvent(w.event)
	if what == "memory" {
		token, err = ipc.ExportBuffer(w.buf)
	}
	if err != nil {
		return "", err
	}
	b, err := tokenForms[form].write(token)
	if form == "binary" {
		return hex.EncodeToString(b), err
	}
	return string(b), err
}

func (w *worker) open(what, form, text string) (err error) {
	b := []byte(text)
	if form == "binary" {
		if b, err = hex.DecodeString(text); err != nil {
			return err
		}
	}
	var token ipc.Token
	if err := tokenForms[form].read(&token, b); err != nil {
		return err
	}
	if what == "memory" {
		w.buf, err = ipc.ImportBuffer[uint32](w.d.Driver(), token, nil)
	} else {
		w.event, err = ipc.ImportEvent(w.d.Driver(), token, nil)
	}
	return err
}

// share has one make an event and memory, and the other import them.
func share(t testing.TB, from, to hand, form string) {
	t.Helper()
	tells(t, from, "make")
	for _, what := range []string{"event", "memory"} {
		tells(t, to, "import", what, form, tells(t, from, "export", what, form))
	}
}

// workerVariable has a test binary be a worker that takes commands from its input.
const workerVariable = "PURECUDA_TEST_WORKER"

// remoteWorker is a worker in another process.
type remoteWorker struct {
	*testgpu.Child
	reaped func()
}

// startWorker starts a worker, by a command in front of it if there is one.
func startWorker(t *testing.T, before ...string) *remoteWorker {
	t.Helper()
	w := launchWorker(t, before...)
	require.Equal(t, "ok ready", w.Says())
	return w
}

func launchWorker(t *testing.T, before ...string) *remoteWorker {
	t.Helper()
	command := append(before, os.Args[0], "-test.run=^TestWorkerProcess$", "-test.v")
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), workerVariable+"=1")
	w := &remoteWorker{Child: testgpu.StartChild(t, cmd)}
	w.reaped = sync.OnceFunc(func() { _ = w.Cmd.Wait() })
	t.Cleanup(func() { w.kill(); w.reaped() })
	return w
}

func (w *remoteWorker) do(command ...string) (string, error) {
	if _, err := fmt.Fprintln(w.In, strings.Join(command, " ")); err != nil {
		return "", err
	}
	kind, answer, _ := strings.Cut(w.Says(), " ")
	if kind != "ok" {
		return "", errors.New(answer)
	}
	return answer, nil
}

// kill sends SIGKILL, and does not wait for the end. It returns when that was.
func (w *remoteWorker) kill() (at time.Time) {
	at = time.Now()
	_ = w.Cmd.Process.Kill()
	_ = w.In.Close()
	return at
}

func TestWorkerProcess(t *testing.T) {
	if os.Getenv(workerVariable) == "" {
		t.Skip("runs as the child of other tests")
	}
	say := func(answer string, err error) {
		if err != nil {
			testgpu.Say("error %s", strings.ReplaceAll(err.Error(), "\n", "; "))
			return
		}
		testgpu.Say("ok %s", answer)
	}
	drv, err := cuda.Open(nil)
	var w *worker
	if err == nil {
		var d *cuda.Device
		if d, err = drv.OpenDevice(0); err == nil {
			w, err = newWorker(d)
		}
	}
	say("ready", err)
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		say(w.do(strings.Fields(lines.Text())...))
	}
	require.NoError(t, w.close())
}

// twoWorkers are one here and one in another process.
func twoWorkers(t *testing.T) (*worker, *remoteWorker) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("processes share events and memory on linux")
	}
	d, err := testgpu.RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	return localWorker(t, d), startWorker(t)
}
