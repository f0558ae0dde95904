package cuda_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// The first of two streams to be done is served first, like the cases of a select.
func ExampleWaitAny() {
	gpu, dev := simulated()
	streams := []*cuda.Stream{must(dev.NewStream(nil)), must(dev.NewStream(nil))}
	defer streams[0].Close()
	defer streams[1].Close()
	release := gpu.Hold(streams[0])
	gpu.Run(streams[1], 2*time.Millisecond)

	ctx := context.Background()
	first := must(cuda.WaitAny(ctx, streams[0], streams[1]))
	fmt.Println("first:", first)

	release()
	check(streams[1-first].Synchronize())
	fmt.Println("then:", 1-first)
	// Output:
	// first: 1
	// then: 0
}

// A wait with a timeout. The work on the device goes on.
func ExampleWaitAny_timeout() {
	gpu, dev := simulated()
	a, b := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer a.Close()
	defer b.Close()
	releaseA, releaseB := gpu.Hold(a), gpu.Hold(b)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	which, err := cuda.WaitAny(ctx, a, b)
	fmt.Println(which, errors.Is(err, context.DeadlineExceeded))

	releaseA()
	which, err = cuda.WaitAny(context.Background(), a, b)
	fmt.Println(which, err)
	releaseB()
	// Output:
	// -1 true
	// 0 <nil>
}

// One call waits for streams, events and whole devices.
func ExampleWaitAll() {
	gpu, dev := simulated()
	load, compute := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer load.Close()
	defer compute.Close()
	gpu.Run(load, time.Millisecond)
	loaded := must(load.RecordEvent(nil))
	defer loaded.Close()
	gpu.Run(compute, 2*time.Millisecond)

	check(cuda.WaitAll(context.Background(), loaded, compute))
	fmt.Println("loaded:", must(loaded.Query()), "computed:", must(compute.Query()))

	// An error says whose it is.
	fmt.Println(cuda.WaitAll(context.Background(), load, nil))
	// Output:
	// loaded: true computed: true
	// cuda: wait for all, number 1 of 2: invalid argument: it is nil
}

// Done gives a channel for a select.
func ExampleStream_Done() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	release := gpu.Hold(s)

	time.AfterFunc(10*time.Millisecond, release)
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	ticked := false
	for done := s.Done(); ; {
		select {
		case <-ticks.C:
			ticked = true // a place to report progress
			continue
		case err := <-done:
			fmt.Println("done, error:", err, "ticked:", ticked)
			return
		}
	}
	// Output: done, error: <nil> ticked: true
}

// A service publishes the figures about its waits.
func ExampleWaitStats() {
	gpu, dev := simulated()
	drv := dev.Driver()
	waits := expvar.Func(func() any { return drv.WaitStats() })
	// In a program: expvar.Publish("cuda_waits", waits)

	s := must(dev.NewStream(nil))
	defer s.Close()
	release := gpu.Hold(s)
	first, second := s.Done(), s.Done()
	stats := waits.Value().(cuda.WaitStats)
	fmt.Println("waiting:", stats.Waiting, "watchers:", stats.Watchers)

	release()
	check(errors.Join(<-first, <-second))
	stats = drv.WaitStats()
	fmt.Println("waiting:", stats.Waiting, "parked:", stats.Parked, "woken:", stats.Woken)
	// Output:
	// waiting: 2 watchers: 1
	// waiting: 0 parked: 2 woken: 2
}

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
