package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/ipc"
)

// fakeTorch answers as share.py does, as another process on a simulated GPU.
type fakeTorch struct {
	dir    string // of the counters
	gpu    *cudatest.GPU
	drv    *cuda.Driver
	dev    *cuda.Device
	s      *cuda.Stream
	block  *cuda.Buffer[float32] // shared
	opened *cuda.Buffer[float32] // of the other process
	ready  *cuda.Event
	done   *cuda.Event
}

const (
	fakeOffset  = 4096 // of the storage in the block, in bytes
	fakeCounter = "/torch_1002_77_0"
	fakeIndex   = 3
)

type request struct {
	Do            string
	Elements      int
	Cycles        int64
	Event, Memory ipc.Token
}

// newGPU returns a simulated GPU that knows the kernels.
func newGPU() *cudatest.GPU {
	gpu := cudatest.New(cudatest.Config{})
	gpu.RegisterKernel("spin", cudatest.Kernel{Time: func(l *cudatest.Launch) time.Duration {
		return time.Duration(cudatest.Arg[uint64](l, 0))
	}})
	gpu.RegisterKernel("affine", cudatest.Kernel{Run: func(l *cudatest.Launch) {
		scale, offset := cudatest.Arg[float32](l, 1), cudatest.Arg[float32](l, 2)
		x := cudatest.Memory[float32](l, 0)[:cudatest.Arg[uint64](l, 3)]
		for i := range x {
			x[i] = scale*x[i] + offset
		}
	}})
	return gpu
}

// startFake starts a process that plays PyTorch's.
func startFake(t *testing.T, gpu *cudatest.GPU) (p *python, dir string) {
	process := gpu.NewProcess()
	drv, err := cuda.OpenDriver(process.API())
	require.NoError(t, err)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := dev.NewStream(nil)
	require.NoError(t, err)
	f := &fakeTorch{dir: t.TempDir(), gpu: gpu, drv: drv, dev: dev, s: s}

	hears, requests := io.Pipe()
	answers, says := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := f.run(bufio.NewScanner(hears), json.NewEncoder(says))
		_ = hears.Close()
		_ = says.Close()
		ended <- err
	}()
	kill := func() error {
		process.Kill()
		_ = hears.Close()
		return nil
	}
	return &python{requests: requests, answers: bufio.NewReader(answers), kill: kill, wait: func() error { return <-ended }}, f.dir
}

func (f *fakeTorch) run(requests *bufio.Scanner, answers *json.Encoder) error {
	id, err := f.dev.UUID()
	if err != nil {
		return err
	}
	self, err := f.drv.FindProcess(0)
	if err != nil {
		return err
	}
	hello := map[string]any{"pid": self.PID, "torch": "0.0", "uuid": strings.TrimPrefix(id.String(), "GPU-")}
	if err := answers.Encode(hello); err != nil {
		return err
	}
	for requests.Scan() {
		var r request
		if err := json.Unmarshal(requests.Bytes(), &r); err != nil {
			return err
		}
		reply, err := f.serve(r)
		if err != nil {
			reply = map[string]any{"error": err.Error()}
		}
		if err := answers.Encode(reply); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeTorch) serve(r request) (map[string]any, error) {
	ctx := context.Background()
	switch r.Do {
	case "share":
		block, err := cuda.Alloc[float32](f.dev, 1<<21)
		if err != nil {
			return nil, err
		}
		f.block = block
		if err := cuda.Fill(f.s, block, -1); err != nil {
			return nil, err
		}
		tensor, err := f.tensor(r.Elements)
		if err != nil {
			return nil, err
		}
		f.gpu.Run(f.s, time.Duration(r.Cycles)/2)
		if err := cuda.CopyFromSlice(ctx, f.s, tensor, values(r.Elements, 1, 0)); err != nil {
			return nil, err
		}
		f.ready = cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
		if err := f.ready.Record(f.s); err != nil {
			return nil, err
		}
		event, err := f.ready.IPCHandle()
		if err != nil {
			return nil, err
		}
		memory, err := block.IPCHandle()
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"handle": append([]byte("\x01c"), memory[:]...), "size": 4 * (r.Elements + 64), "offset": fakeOffset,
			"storage_offset": 64, "shape": []int{r.Elements}, "contiguous": true, "dtype": "torch.float32",
			"counter": fakeCounter, "counter_index": fakeIndex, "event": event[:],
		}, os.WriteFile(filepath.Join(f.dir, fakeCounter), counterContents(map[int]int64{fakeIndex: 1}), 0o600)
	case "check":
		done, err := ipc.ImportEvent(f.drv, r.Event, nil)
		if err != nil {
			return nil, err
		}
		defer done.Close()
		tensor, err := f.tensor(elements)
		if err != nil {
			return nil, err
		}
		return f.check(ctx, done, tensor)
	case "forget":
		contents, err := os.ReadFile(filepath.Join(f.dir, fakeCounter))
		if err != nil {
			return nil, err
		}
		counter := int(binary.NativeEndian.Uint64(contents[counterHeader+8*fakeIndex:]))
		return map[string]any{"kept": counter * f.block.Len()}, f.block.Close()
	case "receive":
		opened, err := ipc.ImportBuffer[float32](f.drv, r.Memory, nil)
		if err != nil {
			return nil, err
		}
		f.opened = opened
		ready, err := ipc.ImportEvent(f.drv, r.Event, nil)
		if err != nil {
			return nil, err
		}
		defer ready.Close()
		reply, err := f.check(ctx, ready, opened)
		if err != nil {
			return nil, err
		}
		f.gpu.Run(f.s, time.Duration(r.Cycles)/2)
		if err := cuda.CopyFromSlice(ctx, f.s, opened, values(opened.Len(), 6, 3)); err != nil {
			return nil, err
		}
		f.done = cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
		if err := f.done.Record(f.s); err != nil {
			return nil, err
		}
		event, err := f.done.IPCHandle()
		reply["event"] = event[:]
		return reply, err
	case "release":
		return map[string]any{}, f.opened.Close()
	}
	return nil, fmt.Errorf("do what? %q", r.Do)
}

// tensor returns the shared part of the block.
func (f *fakeTorch) tensor(n int) (*cuda.Buffer[float32], error) {
	return f.block.Range(fakeOffset/4+64, fakeOffset/4+64+n)
}

// check waits for e and then counts the elements of x that are not 2*i + 1.
func (f *fakeTorch) check(ctx context.Context, e *cuda.Event, x *cuda.Buffer[float32]) (map[string]any, error) {
	done, err := e.Query()
	if err != nil {
		return nil, err
	}
	if err := e.Wait(f.s); err != nil {
		return nil, err
	}
	got, wrong := make([]float32, x.Len()), 0
	if err := cuda.CopyToSlice(ctx, f.s, got, x); err != nil {
		return nil, err
	}
	for i, want := range values(len(got), 2, 1) {
		if got[i] != want {
			wrong++
		}
	}
	return map[string]any{"pending": !done, "wrong": wrong}, nil
}

// values returns scale*i + offset for n numbers i.
func values(n int, scale, offset float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = scale*float32(i) + offset
	}
	return x
}
