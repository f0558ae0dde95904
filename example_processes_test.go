package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// A process that dies before its event is done leaves nobody hanging: the host waits for
// the event, and is told.
func ExampleEvent_WaitAlive() {
	gpu := cudatest.New(cudatest.Config{})
	doomed := gpu.NewProcess()
	there, _ := cuda.OpenDriver(doomed.API())
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
	time.AfterFunc(10*time.Millisecond, doomed.Kill)
	err := opened.WaitAlive(context.Background(), s)
	fmt.Println(errors.Is(err, cuda.ErrPeerGone))
	fmt.Println(dev.Synchronize()) // s was never made to wait
	// Output:
	// true
	// <nil>
}
