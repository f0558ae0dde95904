package driver

import (
	"encoding/hex"
	"fmt"
	"unsafe"
)

// Native handles. The driver gives them out and only the driver can tell a
// good one from a bad one: a made-up handle may crash the process.
type (
	// Device is a CUdevice: the device's ordinal in this process.
	Device int32
	// Context is a CUcontext.
	Context uintptr
	// Stream is a CUstream.
	Stream uintptr
	// Event is a CUevent.
	Event uintptr
	// Graph is a CUgraph, what ending a capture returns.
	Graph uintptr
	// GraphNode is a CUgraphNode.
	GraphNode uintptr
	// GraphExec is a CUgraphExec: a graph that can be launched.
	GraphExec uintptr
	// MemPool is a CUmemoryPool.
	MemPool uintptr
	// Module is a CUmodule.
	Module uintptr
	// Func is a CUfunction: a kernel of a module.
	Func uintptr
	// DevicePtr is a CUdeviceptr: an address in the unified address space, of
	// device memory or of pinned host memory.
	DevicePtr uint64
)

// HostPtr returns the unified address of pinned host memory, for the calls
// that take either kind of memory.
func HostPtr(p unsafe.Pointer) DevicePtr { return DevicePtr(uintptr(p)) }

// Stream handles that name a stream without having been created. Zero is the
// legacy default stream too.
const (
	StreamLegacy    Stream = 1 // CU_STREAM_LEGACY
	StreamPerThread Stream = 2 // CU_STREAM_PER_THREAD
)

// UUID identifies a device across processes and reboots, where ordinals differ.
type UUID [16]byte

// String formats u as nvidia-smi does: "GPU-" and the canonical UUID form.
func (u UUID) String() string {
	h := hex.EncodeToString(u[:])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// IPCEventHandle is a CUipcEventHandle: what another process needs to open an
// interprocess event. It crosses processes as these 64 bytes, as PyTorch's
// Event.ipc_handle gives and takes them.
type IPCEventHandle [64]byte

// IPCMemHandle is a CUipcMemHandle: what another process needs to open a plain
// allocation of device memory.
type IPCMemHandle [64]byte
