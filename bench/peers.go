//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// peerLimit is how long a peer may take.
const peerLimit = 90 * time.Second

// programs are the files that measure the peers.
var programs = map[string]string{
	"PyTorch":       "peer_torch.py",
	"CuPy":          "peer_cupy.py",
	"cuda.core":     "peer_cuda_core.py",
	"cuda.bindings": "peer_cuda_bindings.py",
	"cgo":           "cgo-peer",
}

// request is what a peer is to measure: the file whose name it gets as its argument.
type request struct {
	Library     string         `json:"library"` // the compiled C loop
	Libcuda     string         `json:"libcuda"`
	Rounds      int            `json:"rounds"`
	Batches     map[string]int `json:"batches"` // operations in a sample by row, with one thread
	Threads     []int          `json:"threads"`
	ScaleRounds int            `json:"scale_rounds"` // with several threads
	// ScaleBatches and ScaleBatchesC are what each of several threads does in a sample,
	// by the peer and in C.
	ScaleBatches  map[string]int `json:"scale_batches"`
	ScaleBatchesC map[string]int `json:"scale_batches_c"`
	Kernel        string         `json:"kernel"` // PTX with an empty kernel
	KernelName    string         `json:"kernel_name"`
}

// answer is what a peer prints.
type answer struct {
	peer
	Rows []struct {
		Row     string    `json:"row"`
		Threads int       `json:"threads"`
		Note    string    `json:"note"`
		Time    []float64 `json:"time"` // nanoseconds for an operation, one for each round
		C       []float64 `json:"c"`    // the same of the C loop, or empty
	} `json:"rows"`
}

// scaleRounds is how many rounds with several threads the Python libraries get: their
// threads wait for each other, which makes a round a matter of seconds. For the same
// reason their samples of any row are long enough with a few batches.
const (
	scaleRounds  = 3
	scaleBatches = 4
)

// measurePeers runs each peer in a process of its own, one after the other.
func measurePeers(ctx context.Context, dir string, r request, into *results, stderr io.Writer) error {
	dir, err := filepath.Abs(dir) // a program's bare name would be looked for in $PATH
	if err != nil {
		return err
	}
	for _, name := range peers {
		of := r
		if slices.Contains(pythons, name) {
			of.ScaleRounds = min(r.ScaleRounds, scaleRounds)
			of.ScaleBatches = make(map[string]int)
			for row, n := range r.Batches {
				of.ScaleBatches[row] = scaleBatches * n
			}
		}
		text, err := json.Marshal(of)
		if err != nil {
			return err
		}
		file := filepath.Join(filepath.Dir(r.Library), "request.json")
		if err := os.WriteFile(file, text, 0o666); err != nil {
			return err
		}
		begin := time.Now()
		p, rows := measurePeer(ctx, name, filepath.Join(dir, programs[name]), file)
		into.Peers = append(into.Peers, p)
		into.Rows = append(into.Rows, rows...)
		if p.Absent != "" {
			fmt.Fprintf(stderr, "%s: not measured: %s\n", name, p.Absent)
			continue
		}
		fmt.Fprintf(stderr, "%s %s: %d rows, %.1f s\n", name, p.Version, len(rows), time.Since(begin).Seconds())
	}
	return nil
}

// measurePeer runs a peer. What goes wrong with it is why it is absent.
func measurePeer(ctx context.Context, name, program, request string) (peer, []measured) {
	absent := func(reason string) (peer, []measured) { return peer{Name: name, Absent: reason}, nil }
	if _, err := os.Stat(program); err != nil {
		return absent(filepath.Base(program) + " is not in the folder of the peers")
	}
	out, err := output(ctx, program, request)
	if err != nil {
		return absent(err.Error())
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		return absent(fmt.Sprintf("its output is not what was agreed: %v: %.60q", err, out))
	}
	a.peer.Name = name
	if a.Absent != "" {
		return a.peer, nil
	}
	var rows []measured
	for _, r := range a.Rows {
		if len(r.Time) == 0 || len(r.C) != 0 && len(r.C) != len(r.Time) {
			return absent(fmt.Sprintf("row %s with %d threads has %d times and %d of C", r.Row, r.Threads, len(r.Time), len(r.C)))
		}
		m := newMeasured(r.Row, r.Threads, name, r.Time, r.C)
		m.Note = r.Note
		rows = append(rows, m)
	}
	if len(rows) == 0 {
		return absent("it measured nothing")
	}
	return a.peer, rows
}

// output runs a program and returns what it prints. The error says in one line why
// there is nothing.
func output(ctx context.Context, program, request string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, request)
	if filepath.Ext(program) == ".py" {
		cmd = exec.CommandContext(ctx, "python3", program, request)
	}
	// It ends with what it has started itself, if it takes too long.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1") // the folder may not be ours
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begin := time.Now()
	out, err := cmd.Output()
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it was not done after %.0f s", time.Since(begin).Seconds())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if last := lastLine(stderr.String()); last != "" {
			return nil, fmt.Errorf("%w: %s", err, last)
		}
	}
	return nil, err
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
