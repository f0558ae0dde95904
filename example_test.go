package cuda_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// These examples run on a simulated GPU. On a real one only the first line
// differs:
//
//	dev, err := cuda.OpenDevice(0)
//
// and the work is real, where here gpu.Run and gpu.Hold stand for it.

// Two streams work at the same time. The device's Synchronize waits for both.
func Example_twoStreams() {
	_, dev := simulated()
	s1, s2 := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer s1.Close()
	defer s2.Close()
	a, b := must(cuda.AllocHost[float32](dev, 4, nil)), must(cuda.AllocHost[float32](dev, 4, nil))
	defer a.Close()
	defer b.Close()
	x, y := must(cuda.Alloc[float32](dev, 4)), must(cuda.Alloc[float32](dev, 4))
	defer x.Close()
	defer y.Close()

	check(cuda.Fill(s1, x, 1))
	check(cuda.Copy(s1, a, x))
	check(cuda.Fill(s2, y, 2))
	check(cuda.Copy(s2, b, y))
	check(dev.Synchronize())

	fmt.Println(a.Slice(), b.Slice())
	// Output: [1 1 1 1] [2 2 2 2]
}

// Two events with timing measure the work between them, on the device.
func Example_eventTiming() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	start := cuda.NewEvent(&cuda.EventOptions{Timing: true})
	defer start.Close()
	end := cuda.NewEvent(&cuda.EventOptions{Timing: true})
	defer end.Close()

	release := gpu.Hold(s) // so that the time does not depend on how fast this program enqueues
	check(start.Record(s))
	gpu.Run(s, 3*time.Millisecond)
	check(end.Record(s))
	release()

	check(end.Synchronize())
	d := must(start.ElapsedTime(end))
	fmt.Println(d.Round(time.Microsecond), "(simulated)")
	// Output: 3ms (simulated)
}

// The second stream waits for an event that was recorded between two operations
// of the first: it may use the result of the one while the other still runs.
func Example_eventOrdering() {
	gpu, dev := simulated()
	s1, s2 := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer s1.Close()
	defer s2.Close()
	x := must(cuda.Alloc[int32](dev, 3))
	defer x.Close()
	host := must(cuda.AllocHost[int32](dev, 3, nil))
	defer host.Close()

	check(cuda.Fill(s1, x, 7)) // the first operation
	e := must(s1.RecordEvent(nil))
	defer e.Close()
	release := gpu.Hold(s1) // the second one, which takes long

	check(s2.WaitEvent(e))
	check(cuda.Copy(s2, host, x))
	check(s2.Synchronize())
	fmt.Println("the copy:", host.Slice(), "the first stream is done:", must(s1.Query()))

	release()
	check(s1.Synchronize())
	fmt.Println("the first stream is done:", must(s1.Query()))
	// Output:
	// the copy: [7 7 7] the first stream is done: false
	// the first stream is done: true
}

// WaitStream waits for all that the other stream was given so far; an event for
// the point at which it was recorded. Neither blocks the host.
func Example_waitStreamVersusEvent() {
	gpu, dev := simulated()
	producer := must(dev.NewStream(nil))
	defer producer.Close()
	coarse, fine := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer coarse.Close()
	defer fine.Close()
	x := must(cuda.Alloc[uint8](dev, 16))
	defer x.Close()

	check(cuda.Fill(producer, x, 1))
	ready := must(producer.RecordEvent(nil)) // x is there
	defer ready.Close()
	release := gpu.Hold(producer) // more work, which has nothing to do with x

	check(fine.WaitEvent(ready))
	check(coarse.WaitStream(producer))

	check(fine.Synchronize())
	fmt.Println("while the producer works: the fine one may go on:", must(fine.Query()), "the coarse one:", must(coarse.Query()))
	release()
	check(coarse.Synchronize())
	fmt.Println("when it is done: the coarse one may go on:", must(coarse.Query()))
	// Output:
	// while the producer works: the fine one may go on: true the coarse one: false
	// when it is done: the coarse one may go on: true
}

// Wait makes a stream wait and returns at once; Synchronize makes the host wait.
func Example_waitVersusSynchronize() {
	gpu, dev := simulated()
	s1, s2 := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer s1.Close()
	defer s2.Close()
	release := gpu.Hold(s1)
	e := must(s1.RecordEvent(nil))
	defer e.Close()

	check(e.Wait(s2))
	fmt.Println("after Wait the event is done:", must(e.Query()))

	release()
	check(e.Synchronize()) // the event
	fmt.Println("after Synchronize the event is done:", must(e.Query()))
	check(s2.Synchronize())  // one stream
	check(dev.Synchronize()) // all streams of the device
	// Output:
	// after Wait the event is done: false
	// after Synchronize the event is done: true
}

// A copy of 5000 × 5000 float32 from pinned host memory to the device, timed.
func Example_transferTiming() {
	gpu, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	start, end := cuda.NewEvent(&cuda.EventOptions{Timing: true}), cuda.NewEvent(&cuda.EventOptions{Timing: true})
	defer start.Close()
	defer end.Close()
	host := must(cuda.AllocHost[float32](dev, 5000*5000, nil))
	defer host.Close()
	matrix := must(cuda.Alloc[float32](dev, 5000*5000))
	defer matrix.Close()

	release := gpu.Hold(s)
	check(start.Record(s))
	check(cuda.Copy(s, matrix, host))
	check(end.Record(s))
	release()

	check(end.Synchronize())
	d := must(start.ElapsedTime(end))
	fmt.Println(d.Round(time.Microsecond), "(simulated, at 50 GB/s and 2 µs of latency)")
	// Output: 2.002ms (simulated, at 50 GB/s and 2 µs of latency)
}

// An event recorded on one stream makes another wait. Without it the second
// copy could read before the first has written.
func Example_multiStreamSync() {
	_, dev := simulated()
	upload, download := must(dev.NewStream(nil)), must(dev.NewStream(nil))
	defer upload.Close()
	defer download.Close()
	in, out := must(cuda.AllocHost[float64](dev, 3, nil)), must(cuda.AllocHost[float64](dev, 3, nil))
	defer in.Close()
	defer out.Close()
	x := must(cuda.Alloc[float64](dev, 3))
	defer x.Close()
	copy(in.Slice(), []float64{1, 2, 3})

	check(cuda.Copy(upload, x, in))
	uploaded := must(upload.RecordEvent(nil))
	defer uploaded.Close()
	check(download.WaitEvent(uploaded))
	check(cuda.Copy(download, out, x))
	check(download.Synchronize())

	fmt.Println(out.Slice())
	// Output: [1 2 3]
}

// Data made on the default stream is used on another one. Each call returns at
// once; the host waits only where it needs the result.
func Example_asyncOperations() {
	gpu, dev := simulated()
	x := must(cuda.Alloc[int32](dev, 4))
	defer x.Close()
	host := must(cuda.AllocHost[int32](dev, 4, nil))
	defer host.Close()
	s := must(dev.NewStream(nil))
	defer s.Close()

	release := gpu.Hold(dev.DefaultStream()) // slow work comes first
	check(cuda.Fill(dev.DefaultStream(), x, 5))
	made := must(dev.DefaultStream().RecordEvent(nil))
	defer made.Close()

	check(made.Wait(s))
	check(cuda.Copy(s, host, x))
	fmt.Println("all is enqueued, and done:", must(s.Query()))

	release()
	check(s.Synchronize())
	fmt.Println(host.Slice())
	// Output:
	// all is enqueued, and done: false
	// [5 5 5 5]
}

// Streams and events are made once and used for every batch.
func Example_reuseStream() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	done := cuda.NewEvent(nil)
	defer done.Close()
	x := must(cuda.Alloc[uint32](dev, 8))
	defer x.Close()
	host := must(cuda.AllocHost[uint32](dev, 8, nil))
	defer host.Close()

	var sum uint32
	for batch := range uint32(100) {
		check(cuda.Fill(s, x, batch))
		check(cuda.Copy(s, host, x))
		check(done.Record(s)) // moves the event
		check(done.Synchronize())
		sum += host.Slice()[0]
	}
	stats := dev.Driver().Stats()
	fmt.Println("sum:", sum, "streams:", stats.Streams, "events:", stats.Events)
	// Output: sum: 4950 streams: 1 events: 1
}

// The default stream makes data, another stream uses it, and the default stream
// goes on with the result: one event for each hand-over.
func Example_recordWaitChain() {
	_, dev := simulated()
	def := dev.DefaultStream()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x, y := must(cuda.Alloc[int16](dev, 3)), must(cuda.Alloc[int16](dev, 3))
	defer x.Close()
	defer y.Close()
	host := must(cuda.AllocHost[int16](dev, 3, nil))
	defer host.Close()

	check(cuda.Fill(def, x, 9))
	ev1 := must(def.RecordEvent(nil))
	defer ev1.Close()

	check(s.WaitEvent(ev1))
	check(cuda.Copy(s, y, x))
	ev2 := must(s.RecordEvent(nil))
	defer ev2.Close()

	check(def.WaitEvent(ev2))
	check(cuda.Copy(def, host, y))
	check(def.Synchronize())

	fmt.Println(host.Slice())
	// Output: [9 9 9]
}

// A pinned buffer is ordinary memory to the host, as a slice.
func ExampleCopy() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	host := must(cuda.AllocHost[float32](dev, 4, nil))
	defer host.Close()
	x := must(cuda.Alloc[float32](dev, 4))
	defer x.Close()

	copy(host.Slice(), []float32{1, 2, 3, 4})
	check(cuda.Copy(s, x, host)) // to the device
	check(s.Synchronize())       // from here on the host may touch host again
	clear(host.Slice())
	check(cuda.Copy(s, host, x)) // and back
	check(s.Synchronize())

	fmt.Println(slices.Max(host.Slice()))
	// Output: 4
}

// simulated returns a simulated GPU and its first device.
func simulated() (*cudatest.GPU, *cuda.Device) {
	gpu := cudatest.New(cudatest.Config{})
	return gpu, must(must(cuda.OpenDriver(gpu.API())).OpenDevice(0))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
