// Package cudatest simulates CUDA GPUs for tests that run where there are none.
//
//	gpu := cudatest.New(cudatest.Config{})
//	drv, err := cuda.OpenDriver(gpu.API())
//
// For a test with one device, package cudatest/simulated does that and more in one line.
//
// The simulation stands below package cuda, in place of NVIDIA's driver, so a
// test on it runs the real library: it makes real streams and events and gets
// the driver's own answers, the codes for misuse included. Stream order, events,
// waits, the default stream, capture, several devices and several processes
// behave as documented and as measured on real GPUs; package driver/drivertest
// holds the simulation and real drivers to one rule.
//
// # Time
//
// A simulated operation has a duration and nothing runs in the background: it is
// done when its finish time has come, which each call into the driver compares
// with time.Now. Pretended work takes as long as a test says:
//
//	gpu.Run(stream, 10*time.Millisecond) // busy for that time
//	release := gpu.Hold(stream)          // busy until release is called
//	gpu.Fault(stream, driver.ErrorLaunchFailed)
//
// So tests need not sleep and hope. In a bubble of testing/synctest the time is
// the bubble's: an hour of work takes exactly an hour of it, and no real time
// while the driver itself is what waits. The GPU must then be made in the bubble.
// A runtime cleanup runs outside all bubbles; it may destroy, free and release:
// that leaves the bubble's clock and channels alone, and freeing device memory, or
// closing another process's, does not wait there.
//
// The times are the simulation's and say nothing about a real GPU.
//
// # Memory
//
// Device memory is memory of the test with addresses that the CPU cannot
// follow. Copies and sets really move bytes, at the moment they finish. Fresh
// memory holds [Poison].
//
// # Races
//
// Operations that use the same memory, at least one of them to write it, must be
// ordered: by a stream, an event, a wait of the host and so on. [GPU.Check] reports
// the pairs that are not, with both lines, however the two have run: a forgotten wait
// is found each time, also where the result was right. Not seen is what the CPU
// does to pinned memory. Go's race detector sees that where no call of the driver is
// in between.
//
// # Kernels and host functions
//
// A kernel is a Go function that [GPU.RegisterKernel] lets stand for its code: it
// gets the arguments by the layout that the module's PTX declares, and runs when
// the launch's turn has come. PTX is read for its declarations and for what is no
// PTX at all; its instructions are not. Loading and unloading a module wait for
// the device, as on a real one.
//
// A host function runs on a goroutine of its own, one at a time for each device.
// In a bubble it must have returned before the bubble ends.
//
// # Processes
//
// [GPU.NewProcess] adds a process to the machine, with a table of its own;
// [GPU.NewProcessWith] adds one that sees other devices, is in another PID namespace
// or is another user's. They share events and memory by the functions of the table
// that begin with IPC, and find and watch each other by the table's Processes, where
// each has a PID, counted from 1001. [Process.Kill] ends one as a signal does, at a
// moment that the test chooses; [Process.BeginKill] separates the beginning of the
// end from the end.
//
// # Strictness
//
// [GPU.Check] also reports what was leaked and every misuse with the line it came
// from. Where the real driver may crash, such as on the use of a destroyed
// handle, the simulation answers INVALID_HANDLE. It tracks which context is
// current on which OS thread, so a call that runs on the wrong one answers
// INVALID_CONTEXT. (Where the system has no cheap thread number, which is
// everywhere but on Linux and Windows, the goroutine stands for the thread.)
//
// Two threads must not be at the same time in calls that touch one capture: that name
// a stream which is part of it, or an event that was recorded in it. NVIDIA's driver
// does not synchronise these and crashes; here the later call panics and names both.
// Only StreamIsCapturing and the destruction of graphs are safe.
//
// # Limits
//
// All operations of different streams overlap freely: there is no contention for
// copy engines, bandwidth or multiprocessors, and priorities order nothing. The
// whole of a kernel happens at its end. The per-thread default stream
// answers NOT_SUPPORTED. Only primary contexts exist. Memory cannot be allocated in
// a capture. A context that is broken
// by a fault lets go of other contexts' work that waits for it.
//
// For a program that watches pinned memory without calling the driver, a timer
// makes the writes happen and host functions run, late by the precision of Go's
// timers: about a millisecond when idle. Waiting calls, too, return as late as a
// timer is; none of them spins.
package cudatest
