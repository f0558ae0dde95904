package cuda_test

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/kernels"
)

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
