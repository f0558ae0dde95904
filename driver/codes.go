package driver

// The codes of CUresult, by the driver's names and numbers.
const (
	Success                           Result = 0
	ErrorInvalidValue                 Result = 1
	ErrorOutOfMemory                  Result = 2
	ErrorNotInitialized               Result = 3
	ErrorDeinitialized                Result = 4
	ErrorProfilerDisabled             Result = 5
	ErrorProfilerNotInitialized       Result = 6
	ErrorProfilerAlreadyStarted       Result = 7
	ErrorProfilerAlreadyStopped       Result = 8
	ErrorStubLibrary                  Result = 34
	ErrorCallRequiresNewerDriver      Result = 36
	ErrorDeviceUnavailable            Result = 46
	ErrorNoDevice                     Result = 100
	ErrorInvalidDevice                Result = 101
	ErrorDeviceNotLicensed            Result = 102
	ErrorInvalidImage                 Result = 200
	ErrorInvalidContext               Result = 201
	ErrorContextAlreadyCurrent        Result = 202
	ErrorMapFailed                    Result = 205
	ErrorUnmapFailed                  Result = 206
	ErrorArrayIsMapped                Result = 207
	ErrorAlreadyMapped                Result = 208
	ErrorNoBinaryForGPU               Result = 209
	ErrorAlreadyAcquired              Result = 210
	ErrorNotMapped                    Result = 211
	ErrorNotMappedAsArray             Result = 212
	ErrorNotMappedAsPointer           Result = 213
	ErrorECCUncorrectable             Result = 214
	ErrorUnsupportedLimit             Result = 215
	ErrorContextAlreadyInUse          Result = 216
	ErrorPeerAccessUnsupported        Result = 217
	ErrorInvalidPTX                   Result = 218
	ErrorInvalidGraphicsContext       Result = 219
	ErrorNVLinkUncorrectable          Result = 220
	ErrorJITCompilerNotFound          Result = 221
	ErrorUnsupportedPTXVersion        Result = 222
	ErrorJITCompilationDisabled       Result = 223
	ErrorUnsupportedExecAffinity      Result = 224
	ErrorUnsupportedDevsideSync       Result = 225
	ErrorContained                    Result = 226
	ErrorInvalidSource                Result = 300
	ErrorFileNotFound                 Result = 301
	ErrorSharedObjectSymbolNotFound   Result = 302
	ErrorSharedObjectInitFailed       Result = 303
	ErrorOperatingSystem              Result = 304
	ErrorInvalidHandle                Result = 400
	ErrorIllegalState                 Result = 401
	ErrorLossyQuery                   Result = 402
	ErrorNotFound                     Result = 500
	ErrorNotReady                     Result = 600
	ErrorIllegalAddress               Result = 700
	ErrorLaunchOutOfResources         Result = 701
	ErrorLaunchTimeout                Result = 702
	ErrorLaunchIncompatibleTexturing  Result = 703
	ErrorPeerAccessAlreadyEnabled     Result = 704
	ErrorPeerAccessNotEnabled         Result = 705
	ErrorPrimaryContextActive         Result = 708
	ErrorContextIsDestroyed           Result = 709
	ErrorAssert                       Result = 710
	ErrorTooManyPeers                 Result = 711
	ErrorHostMemoryAlreadyRegistered  Result = 712
	ErrorHostMemoryNotRegistered      Result = 713
	ErrorHardwareStackError           Result = 714
	ErrorIllegalInstruction           Result = 715
	ErrorMisalignedAddress            Result = 716
	ErrorInvalidAddressSpace          Result = 717
	ErrorInvalidPC                    Result = 718
	ErrorLaunchFailed                 Result = 719
	ErrorCooperativeLaunchTooLarge    Result = 720
	ErrorTensorMemoryLeak             Result = 721
	ErrorNotPermitted                 Result = 800
	ErrorNotSupported                 Result = 801
	ErrorSystemNotReady               Result = 802
	ErrorSystemDriverMismatch         Result = 803
	ErrorCompatNotSupportedOnDevice   Result = 804
	ErrorMPSConnectionFailed          Result = 805
	ErrorMPSRPCFailure                Result = 806
	ErrorMPSServerNotReady            Result = 807
	ErrorMPSMaxClientsReached         Result = 808
	ErrorMPSMaxConnectionsReached     Result = 809
	ErrorMPSClientTerminated          Result = 810
	ErrorCDPNotSupported              Result = 811
	ErrorCDPVersionMismatch           Result = 812
	ErrorStreamCaptureUnsupported     Result = 900
	ErrorStreamCaptureInvalidated     Result = 901
	ErrorStreamCaptureMerge           Result = 902
	ErrorStreamCaptureUnmatched       Result = 903
	ErrorStreamCaptureUnjoined        Result = 904
	ErrorStreamCaptureIsolation       Result = 905
	ErrorStreamCaptureImplicit        Result = 906
	ErrorCapturedEvent                Result = 907
	ErrorStreamCaptureWrongThread     Result = 908
	ErrorTimeout                      Result = 909
	ErrorGraphExecUpdateFailure       Result = 910
	ErrorExternalDevice               Result = 911
	ErrorInvalidClusterSize           Result = 912
	ErrorFunctionNotLoaded            Result = 913
	ErrorInvalidResourceType          Result = 914
	ErrorInvalidResourceConfiguration Result = 915
	ErrorKeyRotation                  Result = 916
	ErrorStreamDetached               Result = 917
	ErrorGraphRecaptureFailure        Result = 918
	ErrorUnknown                      Result = 999
)

// results holds each code's name and meaning.
var results = map[Result]struct{ name, text string }{
	Success:                           {"CUDA_SUCCESS", "no error"},
	ErrorInvalidValue:                 {"CUDA_ERROR_INVALID_VALUE", "a parameter is out of its range"},
	ErrorOutOfMemory:                  {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	ErrorNotInitialized:               {"CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialized"},
	ErrorDeinitialized:                {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
	ErrorProfilerDisabled:             {"CUDA_ERROR_PROFILER_DISABLED", "the profiler is disabled while an external profiler is used"},
	ErrorProfilerNotInitialized:       {"CUDA_ERROR_PROFILER_NOT_INITIALIZED", "the profiler is not initialized"},
	ErrorProfilerAlreadyStarted:       {"CUDA_ERROR_PROFILER_ALREADY_STARTED", "the profiler is already started"},
	ErrorProfilerAlreadyStopped:       {"CUDA_ERROR_PROFILER_ALREADY_STOPPED", "the profiler is already stopped"},
	ErrorStubLibrary:                  {"CUDA_ERROR_STUB_LIBRARY", "the library is a stub for linking, not a driver"},
	ErrorCallRequiresNewerDriver:      {"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the call requires a newer driver"},
	ErrorDeviceUnavailable:            {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or unavailable"},
	ErrorNoDevice:                     {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	ErrorInvalidDevice:                {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	ErrorDeviceNotLicensed:            {"CUDA_ERROR_DEVICE_NOT_LICENSED", "the device has no valid license"},
	ErrorInvalidImage:                 {"CUDA_ERROR_INVALID_IMAGE", "the kernel image is invalid"},
	ErrorInvalidContext:               {"CUDA_ERROR_INVALID_CONTEXT", "the context is invalid, or none is current on the thread"},
	ErrorContextAlreadyCurrent:        {"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is already current"},
	ErrorMapFailed:                    {"CUDA_ERROR_MAP_FAILED", "mapping failed"},
	ErrorUnmapFailed:                  {"CUDA_ERROR_UNMAP_FAILED", "unmapping failed"},
	ErrorArrayIsMapped:                {"CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped"},
	ErrorAlreadyMapped:                {"CUDA_ERROR_ALREADY_MAPPED", "the resource is already mapped"},
	ErrorNoBinaryForGPU:               {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image fits the device"},
	ErrorAlreadyAcquired:              {"CUDA_ERROR_ALREADY_ACQUIRED", "the resource is already acquired"},
	ErrorNotMapped:                    {"CUDA_ERROR_NOT_MAPPED", "the resource is not mapped"},
	ErrorNotMappedAsArray:             {"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array"},
	ErrorNotMappedAsPointer:           {"CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer"},
	ErrorECCUncorrectable:             {"CUDA_ERROR_ECC_UNCORRECTABLE", "an uncorrectable memory error (ECC) was found"},
	ErrorUnsupportedLimit:             {"CUDA_ERROR_UNSUPPORTED_LIMIT", "the device does not support the limit"},
	ErrorContextAlreadyInUse:          {"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread"},
	ErrorPeerAccessUnsupported:        {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the two devices cannot access each other"},
	ErrorInvalidPTX:                   {"CUDA_ERROR_INVALID_PTX", "compiling the PTX failed"},
	ErrorInvalidGraphicsContext:       {"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid OpenGL or DirectX context"},
	ErrorNVLinkUncorrectable:          {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "an uncorrectable NVLink error was found"},
	ErrorJITCompilerNotFound:          {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found"},
	ErrorUnsupportedPTXVersion:        {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX was made by a toolchain newer than the driver"},
	ErrorJITCompilationDisabled:       {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX is disabled"},
	ErrorUnsupportedExecAffinity:      {"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the execution affinity is not supported"},
	ErrorUnsupportedDevsideSync:       {"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the PTX calls cudaDeviceSynchronize, which is not supported"},
	ErrorContained:                    {"CUDA_ERROR_CONTAINED", "a contained memory error ended the work of this process"},
	ErrorInvalidSource:                {"CUDA_ERROR_INVALID_SOURCE", "the kernel source is invalid"},
	ErrorFileNotFound:                 {"CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
	ErrorSharedObjectSymbolNotFound:   {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a symbol of a shared object was not found"},
	ErrorSharedObjectInitFailed:       {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared object could not be initialized"},
	ErrorOperatingSystem:              {"CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed"},
	ErrorInvalidHandle:                {"CUDA_ERROR_INVALID_HANDLE", "the handle is not valid"},
	ErrorIllegalState:                 {"CUDA_ERROR_ILLEGAL_STATE", "a resource is not in the state that the call needs"},
	ErrorLossyQuery:                   {"CUDA_ERROR_LOSSY_QUERY", "the answer would lose information"},
	ErrorNotFound:                     {"CUDA_ERROR_NOT_FOUND", "the named symbol was not found"},
	ErrorNotReady:                     {"CUDA_ERROR_NOT_READY", "work enqueued before is not finished"},
	ErrorIllegalAddress:               {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an illegal address"},
	ErrorLaunchOutOfResources:         {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch needs more resources than there are"},
	ErrorLaunchTimeout:                {"CUDA_ERROR_LAUNCH_TIMEOUT", "the kernel ran longer than the system allows"},
	ErrorLaunchIncompatibleTexturing:  {"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the launch uses an incompatible texturing mode"},
	ErrorPeerAccessAlreadyEnabled:     {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	ErrorPeerAccessNotEnabled:         {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled"},
	ErrorPrimaryContextActive:         {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active already"},
	ErrorContextIsDestroyed:           {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context is destroyed"},
	ErrorAssert:                       {"CUDA_ERROR_ASSERT", "an assertion failed in a kernel"},
	ErrorTooManyPeers:                 {"CUDA_ERROR_TOO_MANY_PEERS", "the resources for peer mappings are exhausted"},
	ErrorHostMemoryAlreadyRegistered:  {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered"},
	ErrorHostMemoryNotRegistered:      {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered"},
	ErrorHardwareStackError:           {"CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel corrupted its stack or overran it"},
	ErrorIllegalInstruction:           {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel met an illegal instruction"},
	ErrorMisalignedAddress:            {"CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed a misaligned address"},
	ErrorInvalidAddressSpace:          {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an instruction on the wrong address space"},
	ErrorInvalidPC:                    {"CUDA_ERROR_INVALID_PC", "a kernel's program counter left its code"},
	ErrorLaunchFailed:                 {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
	ErrorCooperativeLaunchTooLarge:    {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the cooperative launch has too many blocks"},
	ErrorTensorMemoryLeak:             {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "a kernel ended without freeing its tensor memory"},
	ErrorNotPermitted:                 {"CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"},
	ErrorNotSupported:                 {"CUDA_ERROR_NOT_SUPPORTED", "the operation is not supported on this system or device"},
	ErrorSystemNotReady:               {"CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready to start CUDA work"},
	ErrorSystemDriverMismatch:         {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the kernel driver and the driver library differ in version"},
	ErrorCompatNotSupportedOnDevice:   {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility is not supported on this device"},
	ErrorMPSConnectionFailed:          {"CUDA_ERROR_MPS_CONNECTION_FAILED", "connecting to the MPS control daemon or server failed"},
	ErrorMPSRPCFailure:                {"CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed"},
	ErrorMPSServerNotReady:            {"CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready for new clients"},
	ErrorMPSMaxClientsReached:         {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no room for another client"},
	ErrorMPSMaxConnectionsReached:     {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has no room for another device connection"},
	ErrorMPSClientTerminated:          {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client"},
	ErrorCDPNotSupported:              {"CUDA_ERROR_CDP_NOT_SUPPORTED", "kernels that launch kernels are not supported here"},
	ErrorCDPVersionMismatch:           {"CUDA_ERROR_CDP_VERSION_MISMATCH", "the program mixes versions of kernels that launch kernels"},
	ErrorStreamCaptureUnsupported:     {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation is not permitted while the stream is capturing"},
	ErrorStreamCaptureInvalidated:     {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error ended the capture"},
	ErrorStreamCaptureMerge:           {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "the operation would merge two captures"},
	ErrorStreamCaptureUnmatched:       {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun in this stream"},
	ErrorStreamCaptureUnjoined:        {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a stream that joined the capture was not joined back"},
	ErrorStreamCaptureIsolation:       {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the capture would depend on uncaptured work"},
	ErrorStreamCaptureImplicit:        {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the default stream would depend on a capturing stream"},
	ErrorCapturedEvent:                {"CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture"},
	ErrorStreamCaptureWrongThread:     {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread"},
	ErrorTimeout:                      {"CUDA_ERROR_TIMEOUT", "the wait timed out"},
	ErrorGraphExecUpdateFailure:       {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph differs too much for an update"},
	ErrorExternalDevice:               {"CUDA_ERROR_EXTERNAL_DEVICE", "a device outside CUDA failed"},
	ErrorInvalidClusterSize:           {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster is misconfigured"},
	ErrorFunctionNotLoaded:            {"CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded"},
	ErrorInvalidResourceType:          {"CUDA_ERROR_INVALID_RESOURCE_TYPE", "the resource has the wrong type"},
	ErrorInvalidResourceConfiguration: {"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "the resources are misconfigured"},
	ErrorKeyRotation:                  {"CUDA_ERROR_KEY_ROTATION", "a key was rotated"},
	ErrorStreamDetached:               {"CUDA_ERROR_STREAM_DETACHED", "the stream is detached"},
	ErrorGraphRecaptureFailure:        {"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", "recapturing the graph failed"},
	ErrorUnknown:                      {"CUDA_ERROR_UNKNOWN", "unknown error"},
}
