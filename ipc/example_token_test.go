package ipc_test

import (
	"context"
	"fmt"
	"time"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/ipc"
)

// Two processes on one machine: one makes memory and an event, the other opens both by
// tokens, which are text on their way, and makes its stream wait. Here the processes are
// simulated; examples/event-ipc does it with real ones.
func ExampleImportEvent() {
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
	event, _ := ipc.ExportEvent(ready)
	memory, _ := ipc.ExportBuffer(buf)
	line, _ := event.MarshalText()
	fmt.Println(string(line[:11])+"...", len(line), "letters")

	// The importer.
	var received ipc.Token
	if err := received.UnmarshalText(line); err != nil {
		fmt.Println(err)
	}
	opened, _ := ipc.ImportEvent(there, received, nil)
	theirs, err := ipc.ImportBuffer[float32](there, memory, nil)
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
