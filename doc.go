// Package cuda gives Go programs CUDA streams and events, without cgo: it opens
// NVIDIA's driver library at run time, and needs no CUDA toolkit and no C
// compiler to build. The semantics are those of PyTorch's torch.cuda.Stream and
// torch.cuda.Event.
//
// # Device, stream, event
//
// A [Device] is one GPU. A [Stream] is a queue of work on a device: copies,
// memory sets, kernels, functions of the host. An [Event] marks a point in a stream;
// other streams wait for it on the device, the host queries it or waits for it,
// and two events with timing measure the time between them.
//
//	dev, err := cuda.OpenDevice(0)
//	s, err := dev.NewStream(nil)
//	start := cuda.NewEvent(&cuda.EventOptions{Timing: true})
//	end := cuda.NewEvent(&cuda.EventOptions{Timing: true})
//	err = start.Record(s)
//	err = cuda.Copy(s, buf, host)
//	err = end.Record(s)
//	err = end.SynchronizeContext(ctx)
//	d, err := start.ElapsedTime(end)
//
// To order two streams, either make one wait for all that the other was given
// so far ([Stream.WaitStream]), or record an event at the very point that
// matters and wait for that ([Event.Record], [Event.Wait]). Neither blocks the
// host.
//
// # Work
//
// [AllocAsync] allocates device memory in the order of a stream, [AllocHost] host
// memory that devices reach. [Copy] and [Fill] move bytes; [Device.LoadModule]
// loads kernels, which [Kernel.Launch] enqueues. [Stream.LaunchHostFunc] calls a Go
// function in a stream's order. [Stream.Capture] turns what a function enqueues
// into a [Graph], which can be launched again and again.
//
// # Concurrency
//
// Everything may be shared by any number of goroutines, and goroutines may move
// between threads: no call leaves anything behind on its thread. Which stream is
// current travels in a context.Context ([WithStream], [Device.CurrentStream]),
// so two goroutines never see each other's choice.
//
// The calls that enqueue, such as Record, Wait, Copy and the launch of a
// [PreparedKernel], return at once, allocate nothing and wait for no lock of this
// package's. There are exceptions: Record takes another native event if the Event is new, was
// last recorded on another stream or is being waited for on the host; the first use of memory
// on a stream that is not its home takes a lock; and calls on the streams of a
// capture take turns. If the driver holds up a call, because the stream's queue is
// full (after about 1,000 operations), it holds up only calls that use that stream.
//
// Synchronize blocks the calling goroutine and no thread, so any
// number of goroutines can wait; SynchronizeContext can be given up, Done gives a
// channel, [WaitAll] and [WaitAny] wait for several things.
//
// # Lifetimes
//
// Streams, events and buffers are closed by Close, which is safe at any time,
// also while other goroutines use the object: calls inside the driver finish
// first, later ones fail with [ErrClosed]. A call on an event that runs at the same time as
// its Close may fail so too. Objects that were never closed are closed by the garbage
// collector and counted in [Stats].Forgotten; pinned host memory is the exception, see [HostBuffer].
//
// The library notes which streams use which memory. A buffer can be closed while
// the device still works with it: its memory is given to nobody else before that
// work is done. For memory of [AllocAsync] neither Close nor any stream waits: it stays
// allocated until other streams that have used it have done the work that they had been given
// when it was closed. See the Close methods for what it costs to free plain and pinned memory.
//
// # Between processes
//
// Events and memory of [Alloc] can be shared with other processes of the machine,
// PyTorch's among them: [Event.IPCHandle] and [Buffer.IPCHandle] give the 64 bytes to
// send, [Device.OpenEvent] and [OpenBuffer] open them, and waits for the event of a process
// that dies end with [ErrPeerGone], if [OpenOptions] say which it is. Package ipc sends
// tokens instead, which say all that is needed and are checked first, and connects two Go
// processes.
//
// # Errors
//
// Every error is an [*Error] that says what was tried. It matches the driver's
// code (driver.Result) and, where the driver has none or the same code for
// several mistakes, the rule that was broken (ErrNotRecorded and its like).
// Not-ready is never an error: Query answers (false, nil). After a failure that
// ends all work on the device, errors match [ErrDeviceLost].
//
// # Testing
//
// Package cudatest has a simulated GPU that plugs in below this package:
//
//	gpu := cudatest.New(cudatest.Config{})
//	drv, err := cuda.OpenDriver(gpu.API())
//
// It moves real bytes in stream order, runs in virtual time under
// testing/synctest, and is stricter than a GPU about misuse.
package cuda
