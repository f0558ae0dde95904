package main

import (
	"fmt"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// tensor is what Python says of a tensor that it shares.
type tensor struct {
	Handle        []byte `json:"handle"` // of the block in which its storage lies
	Size          int    `json:"size"`   // of the storage, in bytes
	Offset        int    `json:"offset"` // of the storage in the block, in bytes
	StorageOffset int    `json:"storage_offset"`
	Shape         []int  `json:"shape"`
	Contiguous    bool   `json:"contiguous"`
	DType         string `json:"dtype"`
	Counter       string `json:"counter"` // see letGo
	CounterIndex  int    `json:"counter_index"`
	Event         []byte `json:"event"` // recorded behind what fills it
}

// extent returns which bytes of the block are the tensor's.
func (t *tensor) extent() (from, to int, err error) {
	const size = 4
	if t.DType != "torch.float32" || !t.Contiguous {
		return 0, 0, fmt.Errorf("a tensor of %s, contiguous: %v; this example is for contiguous ones of torch.float32", t.DType, t.Contiguous)
	}
	limit := t.Size/size - t.StorageOffset // elements
	n := 1
	for _, extent := range t.Shape {
		if extent <= 0 || n > limit/extent {
			n = 0
			break
		}
		n *= extent
	}
	if t.Offset < 0 || t.StorageOffset < 0 || n == 0 || n > limit {
		return 0, 0, fmt.Errorf("a tensor of shape %v at element %d does not lie in a storage of %d bytes at %d", t.Shape, t.StorageOffset, t.Size, t.Offset)
	}
	from = t.Offset + size*t.StorageOffset
	return from, from + size*n, nil
}

// openTensor opens the memory of a tensor. To close what it returns first is to close
// both: the other is a part of it.
func openTensor(dev *cuda.Device, t *tensor) (block *cuda.Buffer[uint8], x *cuda.Buffer[float32], err error) {
	from, to, err := t.extent()
	if err != nil {
		return nil, nil, err
	}
	block, err = cuda.BufferFromIPCHandle(dev, t.Handle)
	if err != nil {
		return nil, nil, err
	}
	// The block is all of what PyTorch's allocator has asked the driver for: up to 20
	// MiB in which other tensors lie too.
	part, err := block.Range(from, to)
	if err == nil {
		x, err = cuda.View[float32](part)
	}
	if err != nil {
		_ = block.Close()
		return nil, nil, err
	}
	return block, x, nil
}

// openEvent opens an event of PyTorch's process, in such a way that the death of the
// process is noticed.
func (p *python) openEvent(handle []byte) (*cuda.Event, error) {
	var h driver.IPCEventHandle
	if len(handle) != len(h) {
		return nil, fmt.Errorf("the script's event handle has %d bytes, and not %d", len(handle), len(h))
	}
	copy(h[:], handle)
	return p.device.OpenEvent(h, &cuda.OpenOptions{Exporter: p.process})
}
