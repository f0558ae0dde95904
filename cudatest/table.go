package cudatest

import (
	"reflect"

	"github.com/purecuda/cuda/driver"
)

// table returns the process's driver functions. Those that are newer than the
// simulated driver are missing.
func (p *Process) table() *driver.API {
	api := &driver.API{
		Source:    p.gpu.String(),
		Retained:  &driver.Retained{},
		Sleep:     p.sleep,
		Processes: &driver.Processes{Find: p.findProcess, Watch: p.watchProcess},

		Init:             p.initialize,
		DriverGetVersion: p.driverGetVersion,

		DeviceGetCount:           p.deviceGetCount,
		DeviceGet:                p.deviceGet,
		DeviceGetName:            p.deviceGetName,
		DeviceGetUUID:            p.deviceGetUUID,
		DeviceGetPCIBusID:        p.deviceGetPCIBusID,
		DeviceGetAttribute:       p.deviceGetAttribute,
		DeviceTotalMem:           p.deviceTotalMem,
		DevicePrimaryCtxRetain:   p.devicePrimaryCtxRetain,
		DevicePrimaryCtxRelease:  p.devicePrimaryCtxRelease,
		DevicePrimaryCtxGetState: p.devicePrimaryCtxGetState,

		CtxPushCurrent:            p.ctxPushCurrent,
		CtxPopCurrent:             p.ctxPopCurrent,
		CtxGetCurrent:             p.ctxGetCurrent,
		CtxGetDevice:              p.ctxGetDevice,
		CtxGetStreamPriorityRange: p.ctxGetStreamPriorityRange,
		CtxSynchronize:            p.ctxSynchronize,
		CtxRecordEvent:            p.ctxRecordEvent,

		StreamCreateWithPriority: p.streamCreateWithPriority,
		StreamDestroy:            p.streamDestroy,
		StreamGetPriority:        p.streamGetPriority,
		StreamGetFlags:           p.streamGetFlags,
		StreamGetCtx:             p.streamGetCtx,
		StreamGetID:              p.streamGetID,
		StreamQuery:              p.streamQuery,
		StreamSynchronize:        p.streamSynchronize,
		StreamWaitEvent:          p.streamWaitEvent,
		StreamWaitValue32:        p.streamWaitValue32,
		StreamWriteValue32:       p.streamWriteValue32,

		StreamBeginCapture:              p.streamBeginCapture,
		StreamEndCapture:                p.streamEndCapture,
		StreamIsCapturing:               p.streamIsCapturing,
		ThreadExchangeStreamCaptureMode: p.threadExchangeStreamCaptureMode,
		GraphDestroy:                    p.graphDestroy,

		EventCreate:          p.eventCreate,
		EventDestroy:         p.eventDestroy,
		EventRecord:          p.eventRecord,
		EventRecordWithFlags: p.eventRecordWithFlags,
		EventQuery:           p.eventQuery,
		EventSynchronize:     p.eventSynchronize,
		EventElapsedTime:     p.eventElapsedTime,

		IPCGetEventHandle:  p.ipcGetEventHandle,
		IPCOpenEventHandle: p.ipcOpenEventHandle,
		IPCGetMemHandle:    p.ipcGetMemHandle,
		IPCOpenMemHandle:   p.ipcOpenMemHandle,
		IPCCloseMemHandle:  p.ipcCloseMemHandle,

		MemGetInfo:         p.memGetInfo,
		MemAlloc:           p.memAlloc,
		MemGetAddressRange: p.memGetAddressRange,
		MemFree:            p.memFree,
		MemHostAlloc:       p.memHostAlloc,
		MemFreeHost:        p.memFreeHost,

		MemcpyAsync:     p.memcpyAsync,
		MemcpyHtoDAsync: p.memcpyHtoDAsync,
		MemcpyDtoHAsync: p.memcpyDtoHAsync,
		MemcpyDtoDAsync: p.memcpyDtoDAsync,
		MemcpyPeerAsync: p.memcpyPeerAsync,
		MemsetD8Async:   p.memsetD8Async,
		MemsetD16Async:  p.memsetD16Async,
		MemsetD32Async:  p.memsetD32Async,

		DeviceGetDefaultMemPool: p.deviceGetDefaultMemPool,
		MemPoolSetAttribute:     p.memPoolSetAttribute,
		MemPoolGetAttribute:     p.memPoolGetAttribute,
		MemPoolSetAccess:        p.memPoolSetAccess,
		MemPoolTrimTo:           p.memPoolTrimTo,
		MemAllocFromPoolAsync:   p.memAllocFromPoolAsync,
		MemFreeAsync:            p.memFreeAsync,

		MemHostRegister:         p.memHostRegister,
		MemHostUnregister:       p.memHostUnregister,
		MemHostGetDevicePointer: p.memHostGetDevicePointer,

		DeviceCanAccessPeer:  p.deviceCanAccessPeer,
		CtxEnablePeerAccess:  p.ctxEnablePeerAccess,
		CtxDisablePeerAccess: p.ctxDisablePeerAccess,

		Memcpy2DAsync: p.memcpy2DAsync,

		ModuleLoadDataEx:  p.moduleLoadDataEx,
		ModuleUnload:      p.moduleUnload,
		ModuleGetFunction: p.moduleGetFunction,

		FuncGetAttribute: p.funcGetAttribute,
		FuncSetAttribute: p.funcSetAttribute,
		FuncGetParamInfo: p.funcGetParamInfo,
		OccupancyMaxActiveBlocksPerMultiprocessor: p.occupancyMaxActiveBlocksPerMultiprocessor,
		OccupancyMaxPotentialBlockSize:            p.occupancyMaxPotentialBlockSize,

		LaunchKernel:            p.launchKernel,
		LaunchCooperativeKernel: p.launchCooperativeKernel,

		LaunchHostFunc: p.launchHostFunc,

		StreamGetCaptureInfo:      p.streamGetCaptureInfo,
		GraphGetNodes:             p.graphGetNodes,
		GraphInstantiateWithFlags: p.graphInstantiateWithFlags,
		GraphUpload:               p.graphUpload,
		GraphLaunch:               p.graphLaunch,
		GraphExecUpdate:           p.graphExecUpdate,
		GraphExecDestroy:          p.graphExecDestroy,
	}
	fields := reflect.ValueOf(api).Elem()
	for _, f := range driver.Functions {
		if f.Since > p.gpu.conf.DriverVersion && f.Else == "" {
			fields.FieldByName(f.Field).SetZero()
		}
	}
	if p.gpu.conf.DriverVersion >= driver.Floor {
		if err := api.Complete(); err != nil {
			panic("cudatest: " + err.Error()) // a function was added to the table and not here
		}
	}
	return api
}
