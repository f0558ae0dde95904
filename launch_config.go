package cuda

import (
	"fmt"
	"math"
)

// Dim3 is a size in up to three dimensions. A Y or Z of zero counts as 1.
type Dim3 struct{ X, Y, Z int }

// LaunchConfig is the shape of a launch. Devices have limits: up to 1024 threads
// per block, and 65535 blocks in Y and in Z, on all of today's.
type LaunchConfig struct {
	Grid  Dim3 // how many blocks
	Block Dim3 // how many threads in each
	// SharedBytes is how much dynamic shared memory each block gets. For more than
	// 48 KiB see [Kernel.SetAttribute].
	SharedBytes int
	// Cooperative runs all blocks at once, so that they can wait for each other. If
	// they do not fit on the device, the launch fails with
	// driver.ErrorCooperativeLaunchTooLarge.
	Cooperative bool
}

// Grid1D returns the shape for at least n threads in blocks of block threads: the
// last block may have threads beyond n, which the kernel must send away.
func Grid1D(n, block int) LaunchConfig {
	c := LaunchConfig{Block: Dim3{X: block}}
	if n > 0 && block > 0 {
		c.Grid.X = (n-1)/block + 1
	}
	return c
}

// shape is a LaunchConfig in the driver's types.
type shape struct {
	grid, block [3]uint32
	shared      uint32
}

// shape checks what the driver's types cannot hold. problem is "" if all is well.
func (c *LaunchConfig) shape() (s shape, problem string) {
	if s.grid, problem = c.Grid.sizes("grid"); problem != "" {
		return s, problem
	}
	if s.block, problem = c.Block.sizes("block"); problem != "" {
		return s, problem
	}
	if c.SharedBytes < 0 || int64(c.SharedBytes) > math.MaxUint32 {
		return s, fmt.Sprintf("%d bytes of shared memory", c.SharedBytes)
	}
	s.shared = uint32(c.SharedBytes)
	return s, ""
}

func (d *Dim3) sizes(what string) (s [3]uint32, problem string) {
	for i, v := range [3]int{d.X, d.Y, d.Z} {
		if v == 0 && i > 0 {
			v = 1
		}
		if v <= 0 || int64(v) > math.MaxUint32 {
			return s, fmt.Sprintf("the %s's %c is %d", what, "XYZ"[i], v)
		}
		s[i] = uint32(v)
	}
	return s, ""
}
