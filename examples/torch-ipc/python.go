package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

//go:embed share.py
var script string

// python is a process that runs share.py.
type python struct {
	requests io.WriteCloser
	answers  *bufio.Reader
	kill     func() error
	wait     func() error

	hello
	process driver.Process
	device  *cuda.Device // of this process, the same as Python's
}

// hello is what the script says first.
type hello struct {
	PID   int    `json:"pid"`
	Torch string `json:"torch"`
	UUID  string `json:"uuid"` // of its device
}

// start runs the script. name is the Python to take.
func start(ctx context.Context, name string) (*python, error) {
	cmd := exec.CommandContext(ctx, name, "-c", script)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; name another Python with -python", err)
	}
	p := &python{requests: in, answers: bufio.NewReader(out), wait: cmd.Wait}
	p.kill = func() error {
		process, err := os.FindProcess(p.PID)
		if err != nil {
			return err
		}
		return process.Kill()
	}
	return p, nil
}

// greet hears what the script says first, and finds its process and its device.
func (p *python) greet(drv *cuda.Driver) error {
	err := p.hear(&p.hello)
	if err != nil {
		return err
	}
	// A handle of PyTorch's does not say whose it is, so that the process must be
	// known otherwise. The script says its number itself, because the Python that was
	// started may have started another.
	if p.process, err = drv.FindProcess(p.PID); err != nil {
		return err
	}
	p.device, err = findDevice(drv, p.UUID)
	return err
}

// findDevice returns the device with a UUID in the form of torch.cuda, without "GPU-".
// Its number may be another than in PyTorch's process.
func findDevice(drv *cuda.Driver, uuid string) (*cuda.Device, error) {
	var want driver.UUID
	if b, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", "")); err != nil || copy(want[:], b) != len(b) || len(b) != len(want) {
		return nil, fmt.Errorf("PyTorch says that its device is %q, which is no UUID", uuid)
	}
	for i := range drv.DeviceCount() {
		dev, err := drv.OpenDevice(i)
		if err != nil {
			return nil, err
		}
		id, err := dev.UUID()
		if err != nil {
			return nil, err
		}
		if id == want {
			return dev, nil
		}
	}
	return nil, fmt.Errorf("PyTorch uses %v, which this process does not see", want)
}

// call sends a request, "do" and the arguments, and hears the answer.
func (p *python) call(request map[string]any, answer any) error {
	if err := json.NewEncoder(p.requests).Encode(request); err != nil {
		return fmt.Errorf("asking the script to %v: %w", request["do"], err)
	}
	return p.hear(answer)
}

// hear reads an answer.
func (p *python) hear(answer any) error {
	line, err := p.answers.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the script has ended without an answer: %w", err)
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(line, &failed); err != nil {
		return fmt.Errorf("the script's answer %q: %w", line, err)
	}
	if failed.Error != "" {
		return errors.New("the script: " + failed.Error)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("the script's answer %q: %w", line, err)
	}
	return nil
}

// end waits for the script's end, which comes with that of its input.
func (p *python) end() error {
	_ = p.requests.Close()
	_, _ = io.Copy(io.Discard, p.answers)
	return p.wait()
}
