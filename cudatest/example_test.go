package cudatest_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// setUp makes device 0's primary context current on the calling thread, as the
// functions that create things need it. Package cuda does that by itself.
func setUp(api *driver.API) (cleanUp func()) {
	runtime.LockOSThread()
	api.Init(0)
	ctx, _ := api.DevicePrimaryCtxRetain(0)
	api.CtxPushCurrent(ctx)
	return func() {
		api.CtxPopCurrent()
		api.DevicePrimaryCtxRelease(0)
		runtime.UnlockOSThread()
	}
}

// The table of a simulated GPU, used directly. Programs use package cuda, by
// cuda.OpenDriver(gpu.API()).
func Example() {
	gpu := cudatest.New(cudatest.Config{})
	api := gpu.API()
	defer setUp(api)()

	stream, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
	event, _ := api.EventCreate(driver.EventDisableTiming)

	release := gpu.Hold(cudatest.Handle(stream))
	api.EventRecord(event, stream)
	fmt.Println("held:    ", api.EventQuery(event).Name())
	release()
	fmt.Println("released:", api.EventQuery(event).Name())

	fmt.Println("too late:", api.EventDestroy(event).Name(), api.EventQuery(event).Name())
	fmt.Println(gpu)
	// Output:
	// held:     CUDA_ERROR_NOT_READY
	// released: CUDA_SUCCESS
	// too late: CUDA_SUCCESS CUDA_ERROR_INVALID_HANDLE
	// simulated GPU (1 × Simulated GPU)
}

// Hold keeps a stream busy, so that a test can look at what must not have
// happened yet.
func ExampleGPU_Hold() {
	gpu := cudatest.New(cudatest.Config{})
	api := gpu.API()
	defer setUp(api)()
	writer, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
	reader, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
	buffer, _ := api.MemAlloc(1)
	host, _ := api.MemHostAlloc(1, 0)
	read := func() byte {
		api.MemcpyDtoHAsync(host, buffer, 1, reader)
		api.StreamSynchronize(reader)
		return unsafe.Slice((*byte)(host), 1)[0]
	}

	release := gpu.Hold(cudatest.Handle(writer))
	api.MemsetD8Async(buffer, 42, 1, writer)
	fmt.Println("without a wait:", read() == cudatest.Poison)

	written, _ := api.EventCreate(driver.EventDisableTiming)
	api.EventRecord(written, writer)
	api.StreamWaitEvent(reader, written, 0)
	release()
	fmt.Println("with a wait:", read())
	// Output:
	// without a wait: true
	// with a wait: 42
}

// A failed kernel breaks its context for good.
func ExampleGPU_Fault() {
	gpu := cudatest.New(cudatest.Config{})
	api := gpu.API()
	defer setUp(api)()
	stream, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)

	gpu.Fault(cudatest.Handle(stream), driver.ErrorIllegalAddress)
	fmt.Println(api.StreamSynchronize(stream))
	_, r := api.EventCreate(0)
	fmt.Println(r)
	// Output:
	// CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel accessed an illegal address
	// CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel accessed an illegal address
}

// Problems names what a program forgot, and where it made it.
func ExampleGPU_Problems() {
	gpu := cudatest.New(cudatest.Config{})
	api := gpu.API()
	defer setUp(api)()
	fmt.Println("before:", len(gpu.Problems())-1) // the pushed context
	event, _ := api.EventCreate(0)
	fmt.Println("leaked:", len(gpu.Problems())-1)
	api.EventDestroy(event)
	fmt.Println("destroyed:", len(gpu.Problems())-1)
	// Output:
	// before: 0
	// leaked: 1
	// destroyed: 0
}

// In a bubble of testing/synctest, the GPU's time is virtual: a test of an hour
// of work takes no time, and durations are exact.
func ExampleNew_virtualTime() {
	var t *testing.T // the test's own

	synctest.Test(t, func(t *testing.T) {
		gpu := cudatest.New(cudatest.Config{})
		api := gpu.API()
		defer setUp(api)()
		stream, _ := api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
		start, _ := api.EventCreate(driver.EventDefault)
		end, _ := api.EventCreate(driver.EventDefault)

		api.EventRecord(start, stream)
		gpu.Run(cudatest.Handle(stream), time.Hour)
		api.EventRecord(end, stream)

		time.Sleep(59 * time.Minute)
		fmt.Println(api.EventQuery(end).Name()) // CUDA_ERROR_NOT_READY
		api.EventSynchronize(end)               // sleeps for the last minute
		ms, _ := api.EventElapsedTime(start, end)
		fmt.Println(ms, "ms, simulated") // 3.6e+06 ms, simulated
	})
}
