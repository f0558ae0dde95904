package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
	"github.com/purecuda/cuda/internal/races"
)

// ErrRace: operations used the same memory, at least one of them to write it, and nothing
// orders them. See [DetectRaces].
var ErrRace = errors.New("operations on the same memory are not ordered")

// DetectRaces returns a table for [OpenDriver] with the functions of api, NVIDIA's or any other,
// that also looks for races: operations on different streams that use the same memory, at
// least one of them to write it, and that no event, no WaitStream and no wait on the host
// orders. It finds them in every run, whether they overlapped or not. A race is an error of
// the next Synchronize that succeeds, which then matches [ErrRace], or goes to the function
// set by [Driver.OnRace]. The report names both lines.
//
// It sees what is enqueued by the table, with the memory that was allocated by it. A kernel
// counts as writing all of the buffers and ranges that it is given, unless the launch says
// otherwise by [Reads] or [Atomics]. Not seen are the work of other libraries, other processes and the CPU, also
// in pinned memory, and addresses that a kernel is given as numbers. Behind a wait for a
// word of memory that the CPU writes, nothing is reported until the host has waited for that.
//
// Each call takes some microseconds more, and what is enqueued on one stream takes turns. Use it
// for tests, not in service. The simulated GPU of package cudatest finds races by
// itself, more exactly.
func DetectRaces(api *driver.API) *driver.API {
	if api == nil {
		return nil
	}
	return races.Detect(api)
}

// OnRace sets the function that is called with each race, on a goroutine of its own, during the
// call that found it. With nil, races are errors of Synchronize. It does nothing if the driver was
// not opened with [Options.DetectRaces] or with a table of [DetectRaces]. f must not call this
// package.
func (d *Driver) OnRace(f func(report string)) {
	if d != nil && d.native != nil {
		d.native.API.Races.On(f)
	}
}

// raced returns the races that were found on a device's driver.
func raced(op string, d *native.Device) error {
	if d == nil {
		return nil
	}
	found := d.Driver.API.Races.Take()
	if len(found) == 0 {
		return nil
	}
	return &Error{Op: op, Err: ErrRace, Detail: strings.Join(found, "\n")}
}

// Access is memory as an argument of a kernel, with what the kernel does with it, which matters
// to [DetectRaces] alone. See [Reads] and [Atomics].
type Access struct {
	of   anyMemory
	kind driver.UseKind
}

// Reads returns b as an argument of a kernel that does not write it: kernels that only read the
// same memory may run at the same time.
func Reads[T Element](b Memory[T]) *Access { return &Access{b, driver.UseReads} }

// Atomics returns b as an argument of a kernel that uses it by atomic operations alone, as other
// kernels may do at the same time.
func Atomics[T Element](b Memory[T]) *Access { return &Access{b, driver.UseAtomics} }

func (a *Access) memory() (m *native.Memory, at driver.DevicePtr, bytes uint64) {
	if a == nil || a.of == nil {
		return nil, 0, 0
	}
	return a.of.memory()
}

// String describes the memory.
func (a *Access) String() string {
	if a == nil {
		return "cuda.Access(nil)"
	}
	return fmt.Sprintf("cuda.Access(%v)", a.of)
}
