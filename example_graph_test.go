package cuda_test

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/kernels"
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

//go:embed testdata/scale.ptx
var scalePTX []byte

// A kernel multiplies a vector by a number. It comes from testdata/scale.cu,
// compiled by nvcc -ptx. On a simulated GPU a Go function stands for its code.
func ExampleKernel() {
	gpu, dev := simulated()
	gpu.RegisterKernel("scale", cudatest.Kernel{Run: func(l *cudatest.Launch) {
		factor, n := cudatest.Arg[float32](l, 1), cudatest.Arg[uint64](l, 2)
		x := cudatest.Memory[float32](l, 0)[:n]
		for i := range x {
			x[i] *= factor
		}
	}})
	module := must(dev.LoadModule(scalePTX))
	defer module.Close()
	scale := must(module.Kernel("scale"))

	s := must(dev.NewStream(nil))
	defer s.Close()
	host := must(cuda.AllocHost[float32](dev, 5, nil))
	defer host.Close()
	x := must(cuda.Alloc[float32](dev, 5))
	defer x.Close()
	copy(host.Slice(), []float32{1, 2, 3, 4, 5})

	check(cuda.Copy(s, x, host))
	check(scale.Launch(s, cuda.Grid1D(x.Len(), 256), x, float32(10), uint64(x.Len())))
	check(cuda.Copy(s, host, x))
	check(s.Synchronize())

	fmt.Println(host.Slice())
	// Output: [10 20 30 40 50]
}

// What is launched many times is prepared once. Set changes one argument.
func ExampleKernel_Prepare() {
	gpu, dev := simulated()
	gpu.RegisterKernel("scale", cudatest.Kernel{Run: func(l *cudatest.Launch) {
		x, factor := cudatest.Memory[float32](l, 0), cudatest.Arg[float32](l, 1)
		for i := range cudatest.Arg[uint64](l, 2) {
			x[i] *= factor
		}
	}})
	module := must(dev.LoadModule(scalePTX))
	defer module.Close()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.AllocHost[float32](dev, 3, nil)) // kernels reach pinned memory too
	defer x.Close()
	copy(x.Slice(), []float32{1, 2, 3})

	double := must(must(module.Kernel("scale")).Prepare(x, float32(2), uint64(3)))
	for range 3 {
		check(double.Launch(s, cuda.Grid1D(3, 256)))
	}
	check(double.Set(1, float32(100)))
	check(double.Launch(s, cuda.Grid1D(3, 256)))
	check(s.Synchronize())

	fmt.Println(x.Slice())
	// Output: [800 1600 2400]
}

// A matrix product, timed by events, with a kernel of this repository's own. The
// times are the simulation's.
func Example_matmulTiming() {
	_, dev := simulated()
	module := must(dev.LoadModule([]byte(kernels.PTX)))
	defer module.Close()
	matmul := must(module.Kernel("purecuda_matmul"))
	s := must(dev.NewStream(nil))
	defer s.Close()
	start, end := cuda.NewEvent(&cuda.EventOptions{Timing: true}), cuda.NewEvent(&cuda.EventOptions{Timing: true})
	defer start.Close()
	defer end.Close()

	const n = 100
	a, b, c := must(cuda.AllocAsync[float32](s, n*n)), must(cuda.AllocAsync[float32](s, n*n)), must(cuda.AllocAsync[float32](s, n*n))
	for _, m := range []*cuda.Buffer[float32]{a, b, c} {
		defer m.Close()
	}
	check(cuda.Fill(s, a, 2))
	check(cuda.Fill(s, b, 3))
	shape := cuda.LaunchConfig{Grid: cuda.Dim3{X: (n + 63) / 64, Y: (n + 63) / 64}, Block: cuda.Dim3{X: 256}}
	check(matmul.Launch(s, shape, c, a, b, uint32(n), uint32(n), uint32(n))) // warms up
	check(start.Record(s))
	check(matmul.Launch(s, shape, c, a, b, uint32(n), uint32(n), uint32(n)))
	check(end.Record(s))

	out := make([]float32, n*n)
	check(cuda.CopyToSlice(context.Background(), s, out, c))
	fmt.Println("every element is 600:", !slices.ContainsFunc(out, func(v float32) bool { return v != 600 }))
	fmt.Println("it took some time (simulated):", must(start.ElapsedTime(end)) > 0)
	// Output:
	// every element is 600: true
	// it took some time (simulated): true
}
