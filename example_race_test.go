package cuda_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// Two streams are unordered unless they are made so. The first copy below may run before the
// fill, or after it, so that on a GPU the program often seems to work. The simulated GPU finds
// the race each time, however the two have run.
func Example_missingWait() {
	gpu, dev := simulated()
	def := dev.DefaultStream()
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[int32](dev, 3))
	defer x.Close()
	host := must(cuda.AllocHost[int32](dev, 3, nil))
	defer host.Close()

	check(cuda.Fill(def, x, 42))
	check(cuda.Copy(s, host, x)) // wrong
	check(dev.Synchronize())

	check(cuda.Fill(def, x, 43))
	check(s.WaitStream(def))
	check(cuda.Copy(s, host, x)) // right
	check(dev.Synchronize())

	for _, problem := range gpu.Problems() { // tests say gpu.Check(t)
		if strings.HasPrefix(problem, "race: ") {
			fmt.Println(problem)
		}
	}
	// Output:
	// race: fill at example_race_test.go:25 and copy at example_race_test.go:26 are not ordered; add an event that is recorded after one and waited for before the other, or WaitStream
	//	fill on default stream of device 0 writes bytes 0 to 11 of the memory made at example_race_test.go:20
	//	copy on stream made at example_race_test.go:18 reads them
}

// With a table of DetectRaces, a race is an error of the next Synchronize that succeeds. The
// simulated GPU stands in for NVIDIA's driver here, for which Options.DetectRaces does the same.
func ExampleDetectRaces() {
	table := cudatest.New(cudatest.Config{AllowRaces: true}).API() // it finds races by itself, too
	dev := must(must(cuda.OpenDriver(cuda.DetectRaces(table))).OpenDevice(0))
	s := must(dev.NewStream(nil))
	defer s.Close()
	x := must(cuda.Alloc[int32](dev, 3))
	defer x.Close()
	host := must(cuda.AllocHost[int32](dev, 3, nil))
	defer host.Close()

	check(cuda.Fill(dev.DefaultStream(), x, 42))
	check(cuda.Copy(s, host, x)) // wrong
	err := s.Synchronize()
	fmt.Println(errors.Is(err, cuda.ErrRace))
	fmt.Println(err)
	// Output:
	// true
	// cuda: stream synchronize: operations on the same memory are not ordered: race: fill at example_race_test.go:57 and copy at example_race_test.go:58 are not ordered; add an event that is recorded after one and waited for before the other, or WaitStream
	//	fill on default stream of device 0 writes bytes 0 to 11 of the memory made at example_race_test.go:52
	//	copy on stream made at example_race_test.go:50 reads them
}
