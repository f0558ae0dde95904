package driver

// Memcpy2D is a CUDA_MEMCPY2D: a copy of Height rows of WidthInBytes bytes, each
// row as many bytes after the one before as the pitch says. Source and
// destination are arrays in memory; with MemoryUnified the addresses stand in
// SrcDevice and DstDevice.
type Memcpy2D struct {
	SrcXInBytes   uint64
	SrcY          uint64
	SrcMemoryType MemoryType
	_             uint32
	SrcHost       uintptr
	SrcDevice     DevicePtr
	SrcArray      uintptr
	SrcPitch      uint64

	DstXInBytes   uint64
	DstY          uint64
	DstMemoryType MemoryType
	_             uint32
	DstHost       uintptr
	DstDevice     DevicePtr
	DstArray      uintptr
	DstPitch      uint64

	WidthInBytes uint64
	Height       uint64
}

// MemoryType is a CUmemorytype.
type MemoryType uint32

// MemoryUnified says that the address itself tells what memory it is of.
const MemoryUnified MemoryType = 4
