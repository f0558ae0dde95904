package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// A buffer is closed while another stream still reads it, and memory is asked for
// again at once. Nobody gets the memory before the reader is done with it, and
// neither the host nor the buffer's home stream waits for that. Nobody has to say
// which streams use a buffer, either.
func Example_crossStreamLifetime() {
	gpu, dev := simulated()
	def := dev.DefaultStream()
	s := must(dev.NewStream(nil))
	defer s.Close()
	host := must(cuda.AllocHost[int32](dev, 3, nil))
	defer host.Close()

	x := must(cuda.AllocAsync[int32](def, 3))
	check(cuda.Fill(def, x, 1))
	check(s.WaitStream(def))
	release := gpu.Hold(s) // slow work comes first
	check(cuda.Copy(s, host, x))
	was := x.Pointer()
	check(x.Close()) // although the copy has not begun

	y := must(cuda.AllocAsync[int32](def, 3))
	defer y.Close()
	check(cuda.Fill(def, y, 2))
	check(def.Synchronize()) // def does not wait for s
	fmt.Println("the same memory, still to be read:", y.Pointer() == was)

	release()
	check(s.Synchronize())
	fmt.Println("the copy:", host.Slice())
	for dev.Driver().Stats().Buffers > 1 { // x is freed in the background, soon after its last use
		time.Sleep(time.Millisecond)
	}
	z := must(cuda.AllocAsync[int32](def, 3))
	defer z.Close()
	fmt.Println("the same memory, after that:", z.Pointer() == was)
	// Output:
	// the same memory, still to be read: false
	// the copy: [1 1 1]
	// the same memory, after that: true
}

// Memory that comes and goes with the work of a stream is taken from the device's
// pool, without a wait on the host.
func ExampleAllocAsync() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	host := must(cuda.AllocHost[float32](dev, 4, nil))
	defer host.Close()

	for i := range 3 {
		x := must(cuda.AllocAsync[float32](s, 4))
		check(cuda.Fill(s, x, float32(i)))
		check(cuda.Copy(s, host, x))
		check(x.Close())
	}
	check(s.Synchronize())
	fmt.Println(host.Slice())
	// Output: [2 2 2 2]
}

// A part of a buffer is a buffer, and a view has elements of another type. Both
// live as long as the buffer does.
func ExampleBuffer_Range() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[uint16](dev, 6))
	defer x.Close()
	out := make([]uint16, 6)

	check(cuda.Fill(s, x, 0))
	check(cuda.Fill(s, must(x.Range(1, 3)), 7))
	bytes := must(cuda.View[uint8](x))
	check(cuda.Fill(s, must(bytes.Range(8, 11)), 255))
	check(cuda.CopyToSlice(context.Background(), s, out, x))
	fmt.Printf("%#x\n", out)
	// Output: [0x0 0x7 0x7 0x0 0xffff 0xff]
}

// A tile is cut out of a matrix of 4 columns and 3 rows: rows 1 and 2, columns 1
// to 3.
func ExampleCopy2D() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	ctx := context.Background()
	matrix, tile := must(cuda.Alloc[int32](dev, 12)), must(cuda.Alloc[int32](dev, 6))
	defer matrix.Close()
	defer tile.Close()

	check(cuda.CopyFromSlice(ctx, s, matrix, []int32{
		0, 1, 2, 3,
		10, 11, 12, 13,
		20, 21, 22, 23,
	}))
	from := must(matrix.Range(1*4+1, 12))
	check(cuda.Copy2D(s, tile, 3, from, 4, 3, 2))
	out := make([]int32, 6)
	check(cuda.CopyToSlice(ctx, s, out, tile))
	fmt.Println(out)
	// Output: [11 12 13 21 22 23]
}

// Go's own slices are copied through pinned memory that the stream keeps.
func ExampleCopyFromSlice() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[float64](dev, 3))
	defer x.Close()

	ctx, in, out := context.Background(), []float64{1, 2, 3}, make([]float64, 3)
	check(cuda.CopyFromSlice(ctx, s, x, in))
	in[0] = 100 // the copy has been enqueued, the slice is free again
	check(cuda.CopyToSlice(ctx, s, out, x))
	fmt.Println(out)
	// Output: [1 2 3]
}

// The pool keeps memory that was freed for the next buffer, until it is trimmed.
func ExampleMemoryPool() {
	_, dev := simulated()
	s := must(dev.NewStream(nil))
	defer s.Close()
	pool := must(dev.MemoryPool())

	x := must(cuda.AllocAsync[byte](s, 1<<20))
	fmt.Println("used:", must(pool.Stats()).Used>>10, "KiB")
	check(x.Close())
	check(s.Synchronize())
	stats := must(pool.Stats())
	fmt.Println("used:", stats.Used>>10, "KiB, reserved:", stats.Reserved>>10, "KiB")
	check(pool.Trim(0))
	fmt.Println("reserved:", must(pool.Stats()).Reserved>>10, "KiB")
	// Output:
	// used: 1024 KiB
	// used: 0 KiB, reserved: 1024 KiB
	// reserved: 0 KiB
}

// A process that dies before its event is done ends the wait of the host for it, with an
// error.
func ExampleEvent_WaitAlive() {
	gpu := cudatest.New(cudatest.Config{})
	exporter := gpu.NewProcess()
	there, _ := cuda.OpenDriver(exporter.API())
	here, _ := cuda.OpenDriver(gpu.API())

	theirs, _ := there.OpenDevice(0)
	busy, _ := theirs.NewStream(nil)
	event := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	gpu.Run(busy, time.Hour)
	event.Record(busy)
	handle, _ := event.IPCHandle()
	self, _ := there.FindProcess(0)

	dev, _ := here.OpenDevice(0)
	opened, _ := dev.OpenEvent(handle, &cuda.OpenOptions{Exporter: self}) // and watch that process
	s, _ := dev.NewStream(nil)
	time.AfterFunc(10*time.Millisecond, exporter.Kill)
	err := opened.WaitAlive(context.Background(), s)
	fmt.Println(errors.Is(err, cuda.ErrPeerGone))
	fmt.Println(dev.Synchronize()) // s was never made to wait
	// Output:
	// true
	// <nil>
}
