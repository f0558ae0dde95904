package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// Two processes on one machine: one makes memory and an event, the other opens both by
// tokens, which are text on their way, and makes its stream wait. Here the processes are
// simulated; examples/event-ipc does it with real ones.
func ExampleDriver_ImportEvent() {
	gpu := cudatest.New(cudatest.Config{})
	here, _ := cuda.OpenDriver(gpu.NewProcess().API())
	there, _ := cuda.OpenDriver(gpu.NewProcess().API())

	// The exporter.
	dev, _ := here.OpenDevice(0)
	s, _ := dev.NewStream(nil)
	buf, _ := cuda.Alloc[float32](dev, 4)
	ready := cuda.NewEvent(&cuda.EventOptions{Interprocess: true})
	gpu.Run(s, 10*time.Millisecond) // pretend work
	cuda.Fill(s, buf, 7)
	ready.Record(s)
	event, _ := ready.Export()
	memory, _ := buf.Export()
	line, _ := event.MarshalText()
	fmt.Println(string(line[:11])+"...", len(line), "letters")

	// The importer.
	var received cuda.Token
	if err := received.UnmarshalText(line); err != nil {
		fmt.Println(err)
	}
	opened, _ := there.ImportEvent(received, nil)
	theirs, err := cuda.ImportBuffer[float32](there, memory, nil)
	if err != nil {
		fmt.Println(err)
	}
	local, _ := theirs.Device().NewStream(nil)
	opened.Wait(local) // returns at once
	out := make([]float32, theirs.Len())
	cuda.CopyToSlice(context.Background(), local, out, theirs)
	fmt.Println(out)
	// Output:
	// cuda-token:... 225 letters
	// [7 7 7 7]
}

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
	token, _ := event.Export()

	imported, _ := here.ImportEvent(token, nil)
	dev, _ := here.OpenDevice(0)
	s, _ := dev.NewStream(nil)
	time.AfterFunc(10*time.Millisecond, doomed.Kill)
	err := imported.WaitAlive(context.Background(), s)
	fmt.Println(errors.Is(err, cuda.ErrPeerGone))
	fmt.Println(dev.Synchronize()) // s was never made to wait
	// Output:
	// true
	// <nil>
}
