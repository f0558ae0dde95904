package cuda_test

import (
	"fmt"
	"time"

	"github.com/purecuda/cuda"
)

// Work of two streams is captured once and then launched as one graph, each time
// with the data of the moment. Events fork and join the streams inside; a pair of
// external ones times every launch.
func ExampleStream_Capture() {
	gpu, dev := simulated()
	s, side := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer s.Close()
	defer side.Close()
	in, out := must(cuda.AllocHost[int32](dev, 3, nil)), must(cuda.AllocHost[int32](dev, 3, nil))
	defer in.Close()
	defer out.Close()
	x := must(cuda.Alloc[int32](dev, 3))
	defer x.Close()
	timing := &cuda.EventOptions{Timing: true, External: true}
	start, end := cuda.NewEvent(timing), cuda.NewEvent(timing)
	defer start.Close()
	defer end.Close()

	graph := must(s.Capture(func() error {
		check(start.Record(s))
		check(cuda.Copy(s, x, in))
		check(side.WaitStream(s)) // fork: from here on side is captured too
		gpu.Run(side, 3*time.Millisecond)
		gpu.Run(s, 2*time.Millisecond) // at the same time
		check(s.WaitStream(side))      // join
		check(cuda.Copy(s, out, x))
		return end.Record(s)
	}))
	exec := must(graph.Instantiate())
	defer exec.Close()
	check(graph.Close()) // it is not needed any more

	for i := range int32(2) {
		copy(in.Slice(), []int32{i, i + 1, i + 2})
		check(exec.Launch(s))
		check(s.Synchronize())
		took := must(start.ElapsedTime(end))
		fmt.Println(out.Slice(), took.Round(time.Millisecond), "(simulated)")
	}
	// Output:
	// [0 1 2] 3ms (simulated)
	// [1 2 3] 3ms (simulated)
}

// The same work on other memory: an update of the executable graph is much
// cheaper than another one.
func ExampleGraphExec_Update() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[uint8](dev, 4))
	defer x.Close()
	captured := func(out *cuda.HostBuffer[uint8]) *cuda.Graph {
		return must(s.Capture(func() error {
			check(cuda.Fill(s, x, 7))
			return cuda.Copy(s, out, x)
		}))
	}
	a, b := must(cuda.AllocHost[uint8](dev, 4, nil)), must(cuda.AllocHost[uint8](dev, 4, nil))
	defer a.Close()
	defer b.Close()
	clear(b.Slice())
	first, second := captured(a), captured(b)
	defer first.Close()
	defer second.Close()

	exec := must(first.Instantiate())
	defer exec.Close()
	check(exec.Launch(s))
	check(s.Synchronize())
	fmt.Println(a.Slice(), b.Slice())

	check(exec.Update(second))
	check(exec.Launch(s))
	check(s.Synchronize())
	fmt.Println(a.Slice(), b.Slice())
	// Output:
	// [7 7 7 7] [0 0 0 0]
	// [7 7 7 7] [7 7 7 7]
}

// A host function is called in the stream's order: after the copy, and before
// what is enqueued later.
func ExampleStream_LaunchHostFunc() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[int32](dev, 3))
	defer x.Close()
	host := must(cuda.AllocHost[int32](dev, 3, nil))
	defer host.Close()

	check(cuda.Fill(s, x, 20))
	check(cuda.Copy(s, host, x))
	check(s.LaunchHostFunc(func(err error) {
		if err != nil {
			return // the device has failed, and the copy may not have been done
		}
		fmt.Println("the host got", host.Slice())
		host.Slice()[0] = 1
	}))
	check(cuda.Copy(s, x, host))
	check(s.Synchronize())
	clear(host.Slice())
	check(cuda.Copy(s, host, x))
	check(s.Synchronize())
	fmt.Println("the device got", host.Slice())
	// Output:
	// the host got [20 20 20]
	// the device got [1 20 20]
}
