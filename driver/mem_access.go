package driver

// MemAccess is a CUmemAccessDesc: what a device may do with a pool's memory.
type MemAccess struct {
	LocationType MemLocationType
	LocationID   int32 // the device, for MemLocationDevice
	Flags        MemAccessFlags
}

// MemLocationType is a CUmemLocationType.
type MemLocationType int32

// MemLocationDevice is the memory of a device.
const MemLocationDevice MemLocationType = 1

// MemAccessFlags is a CUmemAccess_flags.
type MemAccessFlags int32

const (
	MemAccessNone      MemAccessFlags = 0
	MemAccessReadWrite MemAccessFlags = 3
)
