package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/ipc"
)

// peer is the consumer, as the producer sees it.
type peer struct {
	hears io.WriteCloser
	says  *bufio.Reader
	wait  func() error
}

// tell sends a token as a line of text.
func (p *peer) tell(t ipc.Token) error {
	text, err := t.MarshalText()
	if err == nil {
		_, err = fmt.Fprintf(p.hears, "%s\n", text)
	}
	return err
}

// end waits for the consumer's end. One that still expects a token gives up.
func (p *peer) end() error {
	_ = p.hears.Close()
	_, _ = io.Copy(io.Discard, p.says)
	return p.wait()
}

// start starts this program again, as the consumer.
func start(ctx context.Context) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-role", "consumer")
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
		return nil, err
	}
	return &peer{hears: in, says: bufio.NewReader(out), wait: cmd.Wait}, nil
}

// simulate runs both roles in this process, as two processes of a simulated GPU. It
// is a slow one, so that there is something to wait for.
func simulate(ctx context.Context, out io.Writer) error {
	gpu := cudatest.New(cudatest.Config{Latency: 500 * time.Microsecond})
	producer, err := cuda.OpenDriver(gpu.API())
	if err != nil {
		return err
	}
	consumer, err := cuda.OpenDriver(gpu.NewProcess().API())
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "There is no GPU here. This is simulated: two processes on a simulated GPU.")
	return produce(producer, func() (*peer, error) {
		hears, toConsumer := io.Pipe()
		says, answers := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := consume(ctx, consumer, hears, answers)
			_ = hears.Close()
			_ = answers.Close()
			ended <- err
		}()
		return &peer{hears: toConsumer, says: bufio.NewReader(says), wait: func() error { return <-ended }}, nil
	}, 1<<16, out)
}
