package cudatest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/purecuda/cuda/driver"
)

// number returns how the process numbers a device of those that it sees, else -1.
func (p *Process) number(d *device) int { return slices.Index(p.devices, d) }

// device checks an ordinal for the functions that need no context.
func (p *Process) device(d driver.Device) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	if r := p.ready(); r != driver.Success {
		return r
	}
	if d < 0 || int(d) >= len(p.contexts) {
		return driver.ErrorInvalidDevice
	}
	return driver.Success
}

func (p *Process) deviceGetCount() (int32, driver.Result) {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	return int32(len(p.contexts)), p.ready()
}

func (p *Process) deviceGet(ordinal int32) (driver.Device, driver.Result) {
	return driver.Device(ordinal), p.device(driver.Device(ordinal))
}

func (p *Process) deviceGetName(d driver.Device) (string, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return "", r
	}
	return p.gpu.conf.Name, driver.Success
}

// deviceGetUUID makes identifiers that are the same for all processes of the
// machine and differ between machines.
func (p *Process) deviceGetUUID(d driver.Device) (id driver.UUID, r driver.Result) {
	if r := p.device(d); r != driver.Success {
		return id, r
	}
	copy(id[:], "sim\x00")
	binary.BigEndian.PutUint64(id[4:], p.gpu.serial)
	binary.BigEndian.PutUint32(id[12:], uint32(p.devices[d].ordinal))
	return id, driver.Success
}

func (p *Process) deviceGetPCIBusID(d driver.Device) (string, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return "", r
	}
	return fmt.Sprintf("0000:%02X:00.0", p.devices[d].ordinal+1), driver.Success
}

func (p *Process) deviceGetAttribute(a driver.Attribute, d driver.Device) (int32, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return 0, r
	}
	switch a {
	case driver.AttributeMultiprocessorCount:
		return 132, driver.Success
	case driver.AttributeComputeCapabilityMajor:
		return 9, driver.Success
	case driver.AttributeComputeCapabilityMinor:
		return 0, driver.Success
	case driver.AttributeMaxThreadsPerBlock:
		return 1024, driver.Success
	case driver.AttributeMaxSharedMemoryPerBlockOptin:
		return 227 << 10, driver.Success
	case driver.AttributeMemoryPools:
		if p.gpu.conf.NoMemoryPools {
			return 0, driver.Success
		}
		return 1, driver.Success
	case driver.AttributeUnifiedAddressing, driver.AttributeStreamPriorities, driver.AttributeStreamMemoryOperations,
		driver.AttributeCanUseHostPointerForRegisteredMem, driver.AttributeCooperativeLaunch:
		return 1, driver.Success
	}
	return 0, driver.ErrorInvalidValue
}

func (p *Process) deviceTotalMem(d driver.Device) (uint64, driver.Result) {
	if r := p.device(d); r != driver.Success {
		return 0, r
	}
	return p.gpu.conf.Memory, driver.Success
}
