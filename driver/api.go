package driver

//go:generate go run ../internal/gen

import (
	"time"
	"unsafe"
)

// API is the table of driver entry points: one line per function, from which
// the bindings, the fill-in stubs, the list [Functions], docs/functions.md and
// the wrappers of [API.Bound] and [API.Quiet] are generated.
//
// Out-parameters of the C function are results here, so a call allocates
// nothing. The tags:
//
//	cu     the exported symbol, at a pinned ABI version
//	since  the CUDA version (1000*major + 10*minor) that brought it; up to
//	       [Floor] it is required, above it is optional
//	else   the symbol to take where cu is missing
//	out    "last": the pointers to results come after the other arguments
//	inout  the parameter's pointer is also the pointer to the first result
//	ref    the parameter is passed by its address
//	scope  "none": the function concerns the thread's state itself, or no state
//	       at all; [API.Bound] and [API.Quiet] leave it as it is
//
// Structs are passed by address too, IPC handles by value, and a [HostFunc] as
// the C function that calls it and its argument.
//
// Every field may be called from any goroutine. "ctx" marks the functions that
// need a current context on the calling thread: the caller must hold
// runtime.LockOSThread across CtxPushCurrent, the call and CtxPopCurrent.
// Those marked "ctx0" need it only for the default stream.
type API struct {
	// Source says where the functions come from: the path of the driver library,
	// or a simulated GPU's name. Used in messages only.
	Source string
	// Missing lists the symbols that the driver is too old for: of the optional
	// functions, which [API.Complete] adds, and of functions for which an older
	// one stands in.
	Missing []string
	// Retained is told, if it is not nil, what its users keep on purpose.
	Retained *Retained
	// Sleep, unless nil, is how to wait where time may be virtual; NVIDIA's driver
	// has no such function. It returns as soon as EventQuery would answer anything
	// but NOT_READY for one of the events (it does not matter whether a capture
	// forbids to ask), when it has received from wake, or, if limit is positive,
	// after that time. It may return early. It blocks the goroutine and no thread.
	Sleep func(events []Event, limit time.Duration, wake <-chan struct{})
	// Fused, unless nil, does several functions at once.
	Fused *Fused
	// Races, unless nil, are what the table finds and what it wants to be told for that.
	Races *Races
	// Processes, unless nil, are the processes that share the devices, where those are
	// not the operating system's.
	Processes *Processes

	// The driver.
	Init             func(flags uint32) Result        `cu:"cuInit" since:"2000" scope:"none"`
	DriverGetVersion func() (version int32, r Result) `cu:"cuDriverGetVersion" since:"2020" scope:"none"`

	// Devices and their primary contexts.
	DeviceGetCount           func() (count int32, r Result)                        `cu:"cuDeviceGetCount" since:"2000"`
	DeviceGet                func(ordinal int32) (d Device, r Result)              `cu:"cuDeviceGet" since:"2000"`
	DeviceGetName            func(d Device) (name string, r Result)                `cu:"cuDeviceGetName" since:"2000"`
	DeviceGetUUID            func(d Device) (id UUID, r Result)                    `cu:"cuDeviceGetUuid_v2" since:"11040"`
	DeviceGetPCIBusID        func(d Device) (id string, r Result)                  `cu:"cuDeviceGetPCIBusId" since:"4010"`
	DeviceGetAttribute       func(a Attribute, d Device) (v int32, r Result)       `cu:"cuDeviceGetAttribute" since:"2000"`
	DeviceTotalMem           func(d Device) (bytes uint64, r Result)               `cu:"cuDeviceTotalMem_v2" since:"3020"`
	DevicePrimaryCtxRetain   func(d Device) (c Context, r Result)                  `cu:"cuDevicePrimaryCtxRetain" since:"7000"`
	DevicePrimaryCtxRelease  func(d Device) Result                                 `cu:"cuDevicePrimaryCtxRelease_v2" since:"11000"`
	DevicePrimaryCtxGetState func(d Device) (flags uint32, active int32, r Result) `cu:"cuDevicePrimaryCtxGetState" since:"7000" out:"last"`

	// The calling thread's context.
	CtxPushCurrent            func(c Context) Result                   `cu:"cuCtxPushCurrent_v2" since:"4000" scope:"none"`
	CtxPopCurrent             func() (c Context, r Result)             `cu:"cuCtxPopCurrent_v2" since:"4000" scope:"none"`
	CtxGetCurrent             func() (c Context, r Result)             `cu:"cuCtxGetCurrent" since:"4000" scope:"none"`
	CtxGetDevice              func() (d Device, r Result)              `cu:"cuCtxGetDevice" since:"2000"`              // ctx
	CtxGetStreamPriorityRange func() (least, greatest int32, r Result) `cu:"cuCtxGetStreamPriorityRange" since:"5050"` // ctx
	CtxSynchronize            func() Result                            `cu:"cuCtxSynchronize" since:"2000"`            // ctx; blocks
	CtxRecordEvent            func(c Context, e Event) Result          `cu:"cuCtxRecordEvent" since:"12050"`

	// Streams.
	StreamCreateWithPriority func(flags uint32, priority int32) (s Stream, r Result)    `cu:"cuStreamCreateWithPriority" since:"5050"` // ctx
	StreamDestroy            func(s Stream) Result                                      `cu:"cuStreamDestroy_v2" since:"4000"`
	StreamGetPriority        func(s Stream) (priority int32, r Result)                  `cu:"cuStreamGetPriority" since:"5050" out:"last"` // ctx0
	StreamGetFlags           func(s Stream) (flags uint32, r Result)                    `cu:"cuStreamGetFlags" since:"5050" out:"last"`    // ctx0
	StreamGetCtx             func(s Stream) (c Context, r Result)                       `cu:"cuStreamGetCtx" since:"9020" out:"last"`      // ctx0
	StreamGetID              func(s Stream) (id uint64, r Result)                       `cu:"cuStreamGetId" since:"12000" out:"last"`      // ctx0
	StreamQuery              func(s Stream) Result                                      `cu:"cuStreamQuery" since:"2000"`                  // ctx0
	StreamSynchronize        func(s Stream) Result                                      `cu:"cuStreamSynchronize" since:"2000"`            // ctx0; blocks
	StreamWaitEvent          func(s Stream, e Event, flags uint32) Result               `cu:"cuStreamWaitEvent" since:"3020"`              // ctx0
	StreamWaitValue32        func(s Stream, addr DevicePtr, value, flags uint32) Result `cu:"cuStreamWaitValue32_v2" since:"11070"`        // ctx0
	StreamWriteValue32       func(s Stream, addr DevicePtr, value, flags uint32) Result `cu:"cuStreamWriteValue32_v2" since:"11070"`       // ctx0

	// Stream capture.
	StreamBeginCapture              func(s Stream, mode CaptureMode) Result                    `cu:"cuStreamBeginCapture_v2" since:"10010"`
	StreamEndCapture                func(s Stream) (g Graph, r Result)                         `cu:"cuStreamEndCapture" since:"10000" out:"last"`
	StreamIsCapturing               func(s Stream) (status CaptureStatus, r Result)            `cu:"cuStreamIsCapturing" since:"10000" out:"last"` // ctx0
	ThreadExchangeStreamCaptureMode func(mode CaptureMode) (previous CaptureMode, r Result)    `cu:"cuThreadExchangeStreamCaptureMode" since:"10010" inout:"mode" scope:"none"`
	StreamGetCaptureInfo            func(s Stream) (status CaptureStatus, id uint64, r Result) `cu:"cuStreamGetCaptureInfo" since:"10010" out:"last"` // ctx0

	// Events.
	EventCreate          func(flags uint32) (e Event, r Result)        `cu:"cuEventCreate" since:"2000"` // ctx
	EventDestroy         func(e Event) Result                          `cu:"cuEventDestroy_v2" since:"4000"`
	EventRecord          func(e Event, s Stream) Result                `cu:"cuEventRecord" since:"2000"`           // ctx0
	EventRecordWithFlags func(e Event, s Stream, flags uint32) Result  `cu:"cuEventRecordWithFlags" since:"11010"` // ctx0
	EventQuery           func(e Event) Result                          `cu:"cuEventQuery" since:"2000"`
	EventSynchronize     func(e Event) Result                          `cu:"cuEventSynchronize" since:"2000"` // blocks
	EventElapsedTime     func(start, end Event) (ms float32, r Result) `cu:"cuEventElapsedTime_v2" since:"12080" else:"cuEventElapsedTime"`

	// Graphs. What a capture returns, and its executable form.
	GraphGetNodes             func(g Graph, nodes unsafe.Pointer) (n uint64, r Result)                              `cu:"cuGraphGetNodes" since:"10000" out:"last"`
	GraphInstantiateWithFlags func(g Graph, flags uint64) (x GraphExec, r Result)                                   `cu:"cuGraphInstantiateWithFlags" since:"11040"` // ctx
	GraphDestroy              func(g Graph) Result                                                                  `cu:"cuGraphDestroy" since:"10000"`
	GraphUpload               func(x GraphExec, s Stream) Result                                                    `cu:"cuGraphUpload" since:"11010"` // ctx0
	GraphLaunch               func(x GraphExec, s Stream) Result                                                    `cu:"cuGraphLaunch" since:"10000"` // ctx0
	GraphExecUpdate           func(x GraphExec, g Graph) (failed GraphNode, result GraphExecUpdateResult, r Result) `cu:"cuGraphExecUpdate" since:"10020" out:"last"`
	GraphExecDestroy          func(x GraphExec) Result                                                              `cu:"cuGraphExecDestroy" since:"10000"`

	// Between processes. The two opens take their 64-byte structs by value.
	IPCGetEventHandle  func(e Event) (h IPCEventHandle, r Result)                 `cu:"cuIpcGetEventHandle" since:"4010"`    // ctx
	IPCOpenEventHandle func(h IPCEventHandle) (e Event, r Result)                 `cu:"cuIpcOpenEventHandle" since:"4010"`   // ctx
	IPCGetMemHandle    func(p DevicePtr) (h IPCMemHandle, r Result)               `cu:"cuIpcGetMemHandle" since:"4010"`      // ctx
	IPCOpenMemHandle   func(h IPCMemHandle, flags uint32) (p DevicePtr, r Result) `cu:"cuIpcOpenMemHandle_v2" since:"11000"` // ctx
	IPCCloseMemHandle  func(p DevicePtr) Result                                   `cu:"cuIpcCloseMemHandle" since:"4010"`    // ctx

	// Memory.
	MemGetInfo         func() (free, total uint64, r Result)                         `cu:"cuMemGetInfo_v2" since:"3020"`         // ctx
	MemAlloc           func(bytes uint64) (p DevicePtr, r Result)                    `cu:"cuMemAlloc_v2" since:"3020"`           // ctx
	MemGetAddressRange func(p DevicePtr) (base DevicePtr, bytes uint64, r Result)    `cu:"cuMemGetAddressRange_v2" since:"3020"` // ctx
	MemFree            func(p DevicePtr) Result                                      `cu:"cuMemFree_v2" since:"3020"`            // ctx; blocks until the device is idle
	MemHostAlloc       func(bytes uint64, flags uint32) (p unsafe.Pointer, r Result) `cu:"cuMemHostAlloc" since:"2020"`          // ctx
	MemFreeHost        func(p unsafe.Pointer) Result                                 `cu:"cuMemFreeHost" since:"2000"`           // ctx

	// Host memory that somebody else allocated.
	MemHostRegister         func(p unsafe.Pointer, bytes uint64, flags uint32) Result    `cu:"cuMemHostRegister_v2" since:"6050"`         // ctx
	MemHostUnregister       func(p unsafe.Pointer) Result                                `cu:"cuMemHostUnregister" since:"4000"`          // ctx
	MemHostGetDevicePointer func(p unsafe.Pointer, flags uint32) (d DevicePtr, r Result) `cu:"cuMemHostGetDevicePointer_v2" since:"3020"` // ctx

	// Memory pools: allocation and release in stream order.
	DeviceGetDefaultMemPool func(d Device) (p MemPool, r Result)                               `cu:"cuDeviceGetDefaultMemPool" since:"11020"`
	MemPoolSetAttribute     func(p MemPool, a MemPoolAttribute, value uint64) Result           `cu:"cuMemPoolSetAttribute" since:"11020" ref:"value"`
	MemPoolGetAttribute     func(p MemPool, a MemPoolAttribute) (value uint64, r Result)       `cu:"cuMemPoolGetAttribute" since:"11020" out:"last"`
	MemPoolSetAccess        func(p MemPool, access MemAccess, count uint64) Result             `cu:"cuMemPoolSetAccess" since:"11020"` // count is 1
	MemPoolTrimTo           func(p MemPool, keep uint64) Result                                `cu:"cuMemPoolTrimTo" since:"11020"`
	MemAllocFromPoolAsync   func(bytes uint64, p MemPool, s Stream) (addr DevicePtr, r Result) `cu:"cuMemAllocFromPoolAsync" since:"11020"` // ctx0
	MemFreeAsync            func(addr DevicePtr, s Stream) Result                              `cu:"cuMemFreeAsync" since:"11020"`          // ctx0

	// Access of one device to another's memory. That to pools is [API].MemPoolSetAccess.
	DeviceCanAccessPeer  func(d, peer Device) (can int32, r Result) `cu:"cuDeviceCanAccessPeer" since:"4000"`
	CtxEnablePeerAccess  func(peer Context, flags uint32) Result    `cu:"cuCtxEnablePeerAccess" since:"4000"`  // ctx
	CtxDisablePeerAccess func(peer Context) Result                  `cu:"cuCtxDisablePeerAccess" since:"4000"` // ctx

	// Copies and sets, enqueued on a stream.
	MemcpyAsync     func(dst, src DevicePtr, bytes uint64, s Stream) Result                                           `cu:"cuMemcpyAsync" since:"4000"`        // ctx0
	MemcpyHtoDAsync func(dst DevicePtr, src unsafe.Pointer, bytes uint64, s Stream) Result                            `cu:"cuMemcpyHtoDAsync_v2" since:"3020"` // ctx0
	MemcpyDtoHAsync func(dst unsafe.Pointer, src DevicePtr, bytes uint64, s Stream) Result                            `cu:"cuMemcpyDtoHAsync_v2" since:"3020"` // ctx0
	MemcpyDtoDAsync func(dst, src DevicePtr, bytes uint64, s Stream) Result                                           `cu:"cuMemcpyDtoDAsync_v2" since:"3020"` // ctx0
	MemcpyPeerAsync func(dst DevicePtr, dstCtx Context, src DevicePtr, srcCtx Context, bytes uint64, s Stream) Result `cu:"cuMemcpyPeerAsync" since:"4000"`    // ctx0
	Memcpy2DAsync   func(c Memcpy2D, s Stream) Result                                                                 `cu:"cuMemcpy2DAsync_v2" since:"3020"`   // ctx0
	MemsetD8Async   func(dst DevicePtr, value uint8, n uint64, s Stream) Result                                       `cu:"cuMemsetD8Async" since:"3020"`      // ctx0
	MemsetD16Async  func(dst DevicePtr, value uint16, n uint64, s Stream) Result                                      `cu:"cuMemsetD16Async" since:"3020"`     // ctx0
	MemsetD32Async  func(dst DevicePtr, value uint32, n uint64, s Stream) Result                                      `cu:"cuMemsetD32Async" since:"3020"`     // ctx0

	// Kernels. Images, options and arguments are memory that C reads during the
	// call, which must not be on a goroutine's stack.
	ModuleLoadDataEx                          func(image unsafe.Pointer, count uint32, options, values unsafe.Pointer) (m Module, r Result)                                `cu:"cuModuleLoadDataEx" since:"2010"`  // ctx
	ModuleUnload                              func(m Module) Result                                                                                                        `cu:"cuModuleUnload" since:"2000"`      // ctx
	ModuleGetFunction                         func(m Module, name string) (f Func, r Result)                                                                               `cu:"cuModuleGetFunction" since:"2000"` // ctx
	FuncGetAttribute                          func(a FuncAttribute, f Func) (v int32, r Result)                                                                            `cu:"cuFuncGetAttribute" since:"2020"`
	FuncSetAttribute                          func(f Func, a FuncAttribute, v int32) Result                                                                                `cu:"cuFuncSetAttribute" since:"9000"`
	FuncGetParamInfo                          func(f Func, index uint64) (offset, size uint64, r Result)                                                                   `cu:"cuFuncGetParamInfo" since:"12040" out:"last"`
	OccupancyMaxActiveBlocksPerMultiprocessor func(f Func, blockSize int32, sharedBytes uint64) (blocks int32, r Result)                                                   `cu:"cuOccupancyMaxActiveBlocksPerMultiprocessor" since:"6050"`
	OccupancyMaxPotentialBlockSize            func(f Func, sharedFor uintptr, sharedBytes uint64, limit int32) (gridSize, blockSize int32, r Result)                       `cu:"cuOccupancyMaxPotentialBlockSize" since:"6050"`
	LaunchKernel                              func(f Func, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes uint32, s Stream, params, extra unsafe.Pointer) Result `cu:"cuLaunchKernel" since:"4000"`            // ctx0
	LaunchCooperativeKernel                   func(f Func, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes uint32, s Stream, params unsafe.Pointer) Result        `cu:"cuLaunchCooperativeKernel" since:"9000"` // ctx0

	// Functions of the host in a stream.
	LaunchHostFunc func(s Stream, f HostFunc) Result `cu:"cuLaunchHostFunc" since:"10000"` // ctx0
}
