package ipc_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/ipc"
)

// socket returns a path for a socket.
func socket() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "socket"), func() { os.RemoveAll(dir) }
}

// The exporter offers memory by name, the importer attaches it. Here both are simulated
// processes.
func Example() {
	ctx := context.Background()
	path, remove := socket()
	defer remove()
	gpu := cudatest.New(cudatest.Config{})
	listener, err := ipc.Listen(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()

	go func() { // the importer, in a process of its own
		drv, _ := cuda.OpenDriver(gpu.NewProcess().API())
		session, err := ipc.Dial(ctx, path, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		weights, err := ipc.Buffer[float32](ctx, session, drv, "weights")
		if err != nil {
			fmt.Println(err)
			return
		}
		out := make([]float32, weights.Len())
		cuda.CopyToSlice(ctx, weights.Device().DefaultStream(), out, weights)
		fmt.Println("importer:", out)
		session.Close() // closes what was attached
	}()

	drv, _ := cuda.OpenDriver(gpu.NewProcess().API())
	dev, _ := drv.OpenDevice(0)
	buf, _ := cuda.Alloc[float32](dev, 3)
	cuda.CopyFromSlice(ctx, dev.DefaultStream(), buf, []float32{1, 2, 3})
	dev.DefaultStream().Synchronize() // the importer's streams do not wait for this one
	session, err := listener.Accept(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	session.Offer("weights", buf)
	buf.Close() // the session keeps the memory for the importer
	<-session.Done()
	session.Shutdown(ctx)
	fmt.Println("exporter:", drv.Stats().Buffers, "buffers")
	// Output:
	// importer: [1 2 3]
	// exporter: 0 buffers
}

// Batches go from a producer to a consumer, in order and without a copy.
func ExampleNewProducer() {
	ctx := context.Background()
	path, remove := socket()
	defer remove()
	gpu := cudatest.New(cudatest.Config{})
	listener, err := ipc.Listen(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()

	go func() { // the producer, in a process of its own
		drv, _ := cuda.OpenDriver(gpu.NewProcess().API())
		dev, _ := drv.OpenDevice(0)
		s, _ := dev.NewStream(nil)
		session, _ := ipc.Dial(ctx, path, nil)
		defer session.Close()
		ring, err := ipc.NewProducer[int32](ctx, session, dev, "batches", 2, 4)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer ring.Close()
		for i := range int32(3) {
			slot, _ := ring.Next(ctx, s)
			cuda.Fill(s, slot.Buffer, i)
			slot.Send(s)
		}
		ring.Flush(ctx) // until the consumer has used them all
	}()

	drv, _ := cuda.OpenDriver(gpu.NewProcess().API())
	session, err := listener.Accept(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	ring, err := ipc.NewConsumer[int32](ctx, session, drv, "batches")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ring.Close()
	s, _ := ring.Device().NewStream(nil)
	out := make([]int32, 4)
	for {
		batch, err := ring.Next(ctx, s)
		if err == nil {
			cuda.CopyToSlice(ctx, s, out, batch.Buffer)
			batch.Release(s)
			err = batch.Confirm(ctx) // what was read counts only now
		}
		if err == io.EOF {
			fmt.Println("the end")
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(out)
	}
	// Output:
	// [0 0 0 0]
	// [1 1 1 1]
	// [2 2 2 2]
	// the end
}
