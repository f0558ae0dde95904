// Ring sends batches from one process to another through memory of the device, by
// package ipc: a producer fills them, a consumer uses them, and neither copies them
// through the host. It checks every byte, and then measures.
//
// The program starts itself a second time as the consumer. Without a GPU both are
// simulated processes within this one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/ipc"
)

// work is what the two processes do. Both are given the same.
type work struct {
	batches int
	length  int // elements of a batch
	slots   int
}

func main() {
	log.SetFlags(0)
	var w work
	consumer := flag.String("consumer", "", "be the consumer, at this socket (the program starts itself so)")
	flag.IntVar(&w.batches, "batches", 10_000, "how many batches to send")
	flag.IntVar(&w.length, "length", 1<<18, "elements of a batch, of 4 bytes each")
	flag.IntVar(&w.slots, "slots", 8, "buffers of the ring")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var err error
	if *consumer != "" {
		err = consumeHere(ctx, *consumer, w)
	} else {
		err = run(ctx, w)
	}
	if err != nil {
		log.Fatal("ring: ", err)
	}
}

// run is the producer, and sees to the consumer.
func run(ctx context.Context, w work) error {
	dir, err := os.MkdirTemp("", "ring")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	listener, err := ipc.Listen(socket, nil)
	if err != nil {
		return err
	}
	defer listener.Close()

	other := make(chan error, 1)
	drv, err := cuda.Open(nil)
	if err == nil && drv.DeviceCount() > 0 {
		child := exec.CommandContext(ctx, os.Args[0], "-consumer", socket,
			"-batches", fmt.Sprint(w.batches), "-length", fmt.Sprint(w.length), "-slots", fmt.Sprint(w.slots))
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
		go func() { other <- child.Wait() }()
	} else {
		w.batches = min(w.batches, 200)
		w.length = min(w.length, 1<<14)
		gpu := cudatest.New(cudatest.Config{})
		fmt.Printf("no GPU here (%v): two simulated processes; their times say nothing\n", err)
		if drv, err = cuda.OpenDriver(gpu.API()); err != nil {
			return err
		}
		theirs, err := cuda.OpenDriver(gpu.NewProcess().API())
		if err != nil {
			return err
		}
		go func() { other <- dialAndConsume(ctx, theirs, socket, w) }()
	}

	session, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	dev, err := drv.OpenDevice(0)
	if err != nil {
		return err
	}
	err = produce(ctx, dev, session, w)
	session.Close()
	return errors.Join(err, <-other)
}

func consumeHere(ctx context.Context, socket string, w work) error {
	drv, err := cuda.Open(nil)
	if err != nil {
		return err
	}
	return dialAndConsume(ctx, drv, socket, w)
}

func dialAndConsume(ctx context.Context, drv *cuda.Driver, socket string, w work) error {
	session, err := ipc.Dial(ctx, socket, nil)
	if err != nil {
		return err
	}
	return errors.Join(consume(ctx, drv, session, w), session.Close())
}

// source returns what the batches are parts of. Each begins somewhere else, so that
// one is hardly like another at any place.
func source(w work) []uint32 {
	all := make([]uint32, w.length+shifts)
	x := uint32(1)
	for i := range all {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		all[i] = x
	}
	return all
}

const shifts = 4096

// shift returns where in the source batch n begins.
func shift(n uint64) int { return int(n * 1009 % shifts) }
