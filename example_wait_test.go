package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// A function that enqueues work follows its caller's choice of stream.
func ExampleWithStream() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	zero := func(ctx context.Context, x *cuda.Buffer[float32]) error {
		return cuda.Fill(x.Device().CurrentStream(ctx), x, 0)
	}

	ctx := context.Background()
	inner := cuda.WithStream(ctx, s)
	fmt.Println("outside:", dev.CurrentStream(ctx))
	fmt.Println("inside, it is s:", dev.CurrentStream(inner).Equal(s))

	x := must(cuda.Alloc[float32](dev, 4))
	defer x.Close()
	check(zero(inner, x)) // runs on s
	check(s.Synchronize())
	// Output:
	// outside: cuda.Stream(device 0, default)
	// inside, it is s: true
}

// A process exports an event, another one opens it and waits for it. Here both
// are simulated; between real ones the 64 bytes travel through a pipe or socket.
func ExampleDevice_OpenEvent() {
	gpu := cudatest.New(cudatest.Config{})
	there := must(must(cuda.OpenDriver(gpu.API())).OpenDevice(0))
	here := must(must(cuda.OpenDriver(gpu.NewProcess().API())).OpenDevice(0))

	// The exporter.
	s := must(there.NewStream(nil))
	defer s.Close()
	e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	defer e.Close()
	release := gpu.Hold(s)
	check(e.Record(s))
	handle := must(e.IPCHandle())

	// The importer.
	opened := must(here.OpenEvent(handle, nil))
	defer opened.Close()
	t := must(here.NewStream(nil))
	defer t.Close()
	check(opened.Wait(t))
	fmt.Println("the importer's stream may go on:", must(t.Query()))

	release()
	check(t.Synchronize())
	fmt.Println("the importer's stream may go on:", must(t.Query()))
	// Output:
	// the importer's stream may go on: false
	// the importer's stream may go on: true
}

// Done gives a channel for a select.
func ExampleEvent_Done() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	release := gpu.Hold(s)
	e := must(s.RecordEvent(nil))
	defer e.Close()
	done := e.Done()

	select {
	case err := <-done:
		fmt.Println("done:", err)
	case <-time.After(10 * time.Millisecond):
		fmt.Println("not yet")
	}

	release()
	fmt.Println("done, error:", <-done)
	// Output:
	// not yet
	// done, error: <nil>
}

// A wait can be given up. The work on the device goes on.
func ExampleStream_SynchronizeContext() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	release := gpu.Hold(s)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := s.SynchronizeContext(ctx)
	fmt.Println("timed out:", errors.Is(err, context.DeadlineExceeded))

	release()
	fmt.Println("done, error:", s.SynchronizeContext(context.Background()))
	// Output:
	// timed out: true
	// done, error: <nil>
}

// An error matches the rule that was broken, or the driver's code.
func ExampleError() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	start, end := cuda.NewEvent(nil), cuda.NewEvent(nil)
	defer start.Close()
	defer end.Close()
	check(start.Record(s))
	check(end.Record(s))

	_, err := start.ElapsedTime(end)
	fmt.Println(err)
	fmt.Println(errors.Is(err, cuda.ErrNotTimed))

	// A fault: a copy of the table with one function replaced.
	api := *gpu.API()
	api.EventRecord = func(driver.Event, driver.Stream) driver.Result { return driver.ErrorOutOfMemory }
	faulty := must(must(cuda.OpenDriver(&api)).OpenDevice(0))
	_, err = faulty.DefaultStream().RecordEvent(nil)
	fmt.Println(err)
	fmt.Println(errors.Is(err, driver.ErrorOutOfMemory))
	// Output:
	// cuda: event elapsed time: the event was made without timing: the start event
	// true
	// cuda: event record: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory
	// true
}
