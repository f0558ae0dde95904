package cuda_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
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
