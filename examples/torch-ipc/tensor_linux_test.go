package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

func TestTensor(t *testing.T) {
	const answer = `{"handle": "AWNhYmM=", "size": 4256, "offset": 512, "storage_offset": 64, "shape": [10, 100],
		"contiguous": true, "dtype": "torch.float32", "counter": "/torch_1_2_0", "counter_index": 7, "event": "eHl6"}`
	var shared tensor
	require.NoError(t, json.Unmarshal([]byte(answer), &shared))
	require.Equal(t, tensor{
		Handle: []byte("\x01cabc"), Size: 4256, Offset: 512, StorageOffset: 64, Shape: []int{10, 100},
		Contiguous: true, DType: "torch.float32", Counter: "/torch_1_2_0", CounterIndex: 7, Event: []byte("xyz"),
	}, shared)
	from, to, err := shared.extent()
	require.NoError(t, err)
	require.Equal(t, []int{512 + 256, 512 + 256 + 4000}, []int{from, to})

	for name, change := range map[string]func(*tensor){
		"another type":        func(t *tensor) { t.DType = "torch.float16" },
		"with strides":        func(t *tensor) { t.Contiguous = false },
		"one too many":        func(t *tensor) { t.Shape = []int{1001} },
		"too far":             func(t *tensor) { t.StorageOffset = 65 },
		"before the storage":  func(t *tensor) { t.StorageOffset = -1 },
		"before the block":    func(t *tensor) { t.Offset = -4 },
		"empty":               func(t *tensor) { t.Shape = []int{10, 0} },
		"negative":            func(t *tensor) { t.Shape = []int{-10, -100} },
		"an enormous product": func(t *tensor) { t.Shape = []int{1 << 30, 1 << 30, 1 << 30, 1 << 30} },
	} {
		wrong := shared
		change(&wrong)
		_, _, err := wrong.extent()
		require.Error(t, err, name)
	}
}

// A tensor that is said to go on behind the end of its block is not opened.
func TestOpenTensorRefuses(t *testing.T) {
	gpu := newGPU()
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	p, _ := startFake(t, gpu)
	require.NoError(t, p.greet(drv))
	require.Same(t, dev, p.device)
	var shared tensor
	require.NoError(t, p.call(map[string]any{"do": "share", "elements": elements, "cycles": 0}, &shared))
	block, x, err := openTensor(dev, &shared)
	require.NoError(t, err)
	require.Equal(t, elements, x.Len())
	require.NoError(t, block.Close())

	shared.Offset += 4 << 20
	_, _, err = openTensor(dev, &shared)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.Zero(t, drv.Stats().Buffers, "left open")
	shared.Handle[1] = 'e'
	_, _, err = openTensor(dev, &shared)
	require.ErrorContains(t, err, "expandable")
	_, err = p.openEvent(make([]byte, 63))
	require.ErrorContains(t, err, "63 bytes")
	require.NoError(t, p.end())
}

func TestAnswers(t *testing.T) {
	for line, says := range map[string]string{
		"":                                "ended without an answer",
		`{"wrong": 0}`:                    "ended without an answer", // cut off
		"Traceback\n":                     `"Traceback\n"`,
		`{"error": "there is no"}` + "\n": "the script: there is no",
		`{"wrong": "many"}` + "\n":        "many",
	} {
		p := &python{requests: nobody{}, answers: bufio.NewReader(strings.NewReader(line))}
		var answer struct{ Wrong int }
		require.ErrorContains(t, p.call(map[string]any{"do": "check"}, &answer), says, "%q", line)
	}
}

func TestFindDevice(t *testing.T) {
	drv, err := cuda.OpenDriver(newGPU().API())
	require.NoError(t, err)
	for _, uuid := range []string{"", "x", "12345678-1234-1234-1234-12345678", "12345678-1234-1234-1234-1234567890abcd"} {
		_, err := findDevice(drv, uuid)
		require.ErrorContains(t, err, "no UUID", uuid)
	}
	_, err = findDevice(drv, "12345678-1234-1234-1234-1234567890ab")
	require.ErrorContains(t, err, "does not see")
}

// nobody hears requests.
type nobody struct{ io.Writer }

func (nobody) Write(p []byte) (int, error) { return len(p), nil }
func (nobody) Close() error                { return nil }
