package cudatest_test

import (
	"fmt"
	"unsafe"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// A kernel in Go stands for the one that the PTX declares. Programs load modules
// and launch by package cuda; here it is the table's functions.
func ExampleGPU_RegisterKernel() {
	gpu := cudatest.New(cudatest.Config{})
	gpu.RegisterKernel("scale", cudatest.Kernel{Run: func(l *cudatest.Launch) {
		factor := cudatest.Arg[float32](l, 1)
		x := cudatest.Memory[float32](l, 0)
		for i := range x {
			x[i] *= factor
		}
	}})
	api := gpu.API()
	defer setUp(api)()

	ptx := []byte(".version 8.0\n.target sm_80\n.address_size 64\n" +
		".visible .entry scale(.param .u64 x, .param .f32 factor) { ret; }\x00")
	module, _ := api.ModuleLoadDataEx(unsafe.Pointer(&ptx[0]), 0, nil, nil)
	scale, _ := api.ModuleGetFunction(module, "scale")
	stream, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
	pinned, _ := api.MemHostAlloc(12, 0)
	values := unsafe.Slice((*float32)(pinned), 3)
	copy(values, []float32{1, 2, 3})

	x, factor := driver.HostPtr(pinned), float32(10)
	args := []unsafe.Pointer{unsafe.Pointer(&x), unsafe.Pointer(&factor)}
	api.LaunchKernel(scale, 1, 1, 1, 32, 1, 1, 0, stream, unsafe.Pointer(&args[0]), nil)
	api.StreamSynchronize(stream)
	fmt.Println(values)
	// Output: [10 20 30]
}
