package cudatest

import (
	"math"
	"time"

	"github.com/purecuda/cuda/driver"
)

// builtins are the kernels of internal/kernels in Go, with durations that a large
// GPU could have.
func builtins(conf *Config) map[string]Kernel {
	// timed returns how long a kernel takes for argument i, the number of its
	// elements, each of which is so many bytes.
	timed := func(i, bytes int) func(l *Launch) time.Duration {
		return func(l *Launch) time.Duration { return conf.lasting(float64(bytes)*float64(Arg[uint64](l, i)), 0) }
	}
	return map[string]Kernel{
		"purecuda_fill":   {Run: fillKernel, Time: timed(1, 4)},
		"purecuda_add":    {Run: addKernel, Time: timed(3, 12)},
		"purecuda_check":  {Run: checkKernel, Time: timed(1, 4)},
		"purecuda_matmul": {Run: matmulKernel, Time: func(l *Launch) time.Duration { return matmulTime(conf, l) }},
		"purecuda_affine": {Run: affineKernel, Time: func(l *Launch) time.Duration {
			return conf.lasting(8*float64(Arg[affineArgs](l, 0).N), 0)
		}},
		"purecuda_spin": {Time: func(l *Launch) time.Duration {
			return time.Duration(min(Arg[uint64](l, 0), math.MaxInt64))
		}},
		"purecuda_trap":       {Run: func(l *Launch) { l.Fail(driver.ErrorLaunchFailed) }},
		"purecuda_rendezvous": {Run: rendezvousKernel},
		"purecuda_empty":      {},
	}
}

func fillKernel(l *Launch) {
	value := Arg[uint32](l, 2)
	dst := Elements[uint32](l, 0, Arg[uint64](l, 1))
	for i := range dst {
		dst[i] = value
	}
}

func addKernel(l *Launch) {
	n := Arg[uint64](l, 3)
	dst, a, b := Elements[float32](l, 0, n), Elements[float32](l, 1, n), Elements[float32](l, 2, n)
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// affineArgs is the argument of purecuda_affine.
type affineArgs struct {
	Dst, Src      driver.DevicePtr
	Scale, Offset float32
	N             uint64
}

func affineKernel(l *Launch) {
	p := Arg[affineArgs](l, 0)
	dst, src := ElementsAt[float32](l, p.Dst, p.N), ElementsAt[float32](l, p.Src, p.N)
	for i := range dst {
		dst[i] = p.Scale*src[i] + p.Offset
	}
}

func checkKernel(l *Launch) {
	want := Arg[uint32](l, 2)
	for _, v := range Elements[uint32](l, 0, Arg[uint64](l, 1)) {
		if v != want {
			Atomics[uint32](l, 3, 1)[0]++
		}
	}
}

// matmulTile is how many rows and columns a block of purecuda_matmul makes.
const matmulTile = 64

func matmulSize(l *Launch) (m, n, k uint64) {
	return uint64(Arg[uint32](l, 3)), uint64(Arg[uint32](l, 4)), uint64(Arg[uint32](l, 5))
}

func matmulTime(conf *Config, l *Launch) time.Duration {
	m, n, k := matmulSize(l)
	x, y, z := float64(m), float64(n), float64(k)
	return conf.lasting(4*(x*z+z*y+x*y), 2*x*y*z)
}

// matmulKernel leaves alone what the grid does not cover.
func matmulKernel(l *Launch) {
	if l.Block != [3]int{256, 1, 1} {
		panic("purecuda_matmul takes blocks of 256 threads")
	}
	m, n, k := matmulSize(l)
	c := Elements[float32](l, 0, m*n)
	a, b := Elements[float32](l, 1, m*k), Elements[float32](l, 2, k*n)
	columns := min(n, uint64(l.Grid[0])*matmulTile)
	for row := range min(m, uint64(l.Grid[1])*matmulTile) {
		out := c[row*n:][:columns]
		clear(out)
		for i := range k {
			x := a[row*k+i]
			for column, y := range b[i*n:][:columns] {
				out[column] += x * y
			}
		}
	}
}

// rendezvousKernel fails where a GPU would hang: blocks wait for others that do
// not run.
func rendezvousKernel(l *Launch) {
	if !l.Cooperative && !l.atOnce() {
		panic("purecuda_rendezvous needs a cooperative launch")
	}
	blocks := uint64(l.Grid[0])
	Atomics[uint32](l, 0, 1)[0] += uint32(l.Blocks())
	for i, arrived := 0, Elements[uint32](l, 1, blocks); i < len(arrived); i++ {
		arrived[i] = 1
	}
}
