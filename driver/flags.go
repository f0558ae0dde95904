package driver

// Version limits of the table, in the driver's own form (1000*major + 10*minor).
const (
	// Floor is the oldest supported driver, CUDA 11.4. Functions that are older
	// are required; newer ones are optional.
	Floor = 11040
)

// Flags of StreamCreateWithPriority.
const (
	StreamDefault     uint32 = 0 // synchronises with the legacy default stream
	StreamNonBlocking uint32 = 1
)

// Flags of EventCreate.
const (
	EventDefault       uint32 = 0 // records time; EventSynchronize spins
	EventBlockingSync  uint32 = 1 // EventSynchronize sleeps instead of spinning
	EventDisableTiming uint32 = 2
	EventInterprocess  uint32 = 4 // needs EventDisableTiming
)

// Flags of EventRecordWithFlags and StreamWaitEvent: inside a capture the call
// becomes an event node of the graph instead of a dependency.
const (
	EventRecordExternal uint32 = 1
	EventWaitExternal   uint32 = 1
)

// Flags of MemHostAlloc.
const (
	MemHostAllocPortable      uint32 = 1 // pinned for all contexts
	MemHostAllocDeviceMap     uint32 = 2
	MemHostAllocWriteCombined uint32 = 4
)

// Flags of MemHostRegister.
const (
	MemHostRegisterPortable  uint32 = 1 // pinned for all contexts
	MemHostRegisterDeviceMap uint32 = 2
)

// IPCMemLazyEnablePeerAccess is the only flag of IPCOpenMemHandle.
const IPCMemLazyEnablePeerAccess uint32 = 1

// Flags of StreamWaitValue32: how the value in memory is compared.
const (
	StreamWaitValueGEQ uint32 = 0 // (int32)(*addr - value) >= 0
	StreamWaitValueEQ  uint32 = 1
	StreamWaitValueAND uint32 = 2 // *addr & value != 0
	StreamWaitValueNOR uint32 = 3 // ^(*addr | value) != 0
)

// CaptureStatus is what StreamIsCapturing answers.
type CaptureStatus int32

const (
	CaptureNone        CaptureStatus = 0
	CaptureActive      CaptureStatus = 1
	CaptureInvalidated CaptureStatus = 2
)

// CaptureMode says which calls of which threads a capture forbids.
type CaptureMode int32

const (
	CaptureModeGlobal      CaptureMode = 0 // unsafe calls of any thread
	CaptureModeThreadLocal CaptureMode = 1 // unsafe calls of the capturing thread
	CaptureModeRelaxed     CaptureMode = 2 // none
)

// Attribute names a CUdevice_attribute.
type Attribute int32

const (
	AttributeMultiprocessorCount               Attribute = 16
	AttributeUnifiedAddressing                 Attribute = 41
	AttributeComputeCapabilityMajor            Attribute = 75
	AttributeComputeCapabilityMinor            Attribute = 76
	AttributeStreamPriorities                  Attribute = 78
	AttributeStreamMemoryOperations            Attribute = 92
	AttributeMemoryPools                       Attribute = 115
	AttributeCanUseHostPointerForRegisteredMem Attribute = 91
	AttributeCooperativeLaunch                 Attribute = 95
	AttributeMaxThreadsPerBlock                Attribute = 1
	AttributeMaxSharedMemoryPerBlockOptin      Attribute = 97
)

// MemPoolAttribute names a CUmemPool_attribute. All but ReleaseThreshold are
// figures in bytes; the high-water marks can be set to 0, which resets them.
type MemPoolAttribute int32

const (
	MemPoolReleaseThreshold MemPoolAttribute = 4 // how much unused memory to keep over a synchronization
	MemPoolReservedCurrent  MemPoolAttribute = 5
	MemPoolReservedHigh     MemPoolAttribute = 6
	MemPoolUsedCurrent      MemPoolAttribute = 7
	MemPoolUsedHigh         MemPoolAttribute = 8
)

// FuncAttribute names a CUfunction_attribute.
type FuncAttribute int32

const (
	FuncMaxThreadsPerBlock      FuncAttribute = 0
	FuncSharedBytes             FuncAttribute = 1 // static, per block
	FuncConstBytes              FuncAttribute = 2
	FuncLocalBytes              FuncAttribute = 3 // per thread
	FuncRegisters               FuncAttribute = 4 // per thread
	FuncPTXVersion              FuncAttribute = 5
	FuncBinaryVersion           FuncAttribute = 6
	FuncMaxDynamicSharedBytes   FuncAttribute = 8 // can be set
	FuncPreferredSharedCarveout FuncAttribute = 9 // can be set
)

// JITOption names a CUjit_option of ModuleLoadDataEx.
type JITOption int32

const (
	JITInfoLogBuffer      JITOption = 3
	JITInfoLogBufferSize  JITOption = 4
	JITErrorLogBuffer     JITOption = 5
	JITErrorLogBufferSize JITOption = 6
)
