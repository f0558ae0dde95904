package cudatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// What a kernel says of the memory that it gets counts, and what it changes.
func TestRacesOfKernels(t *testing.T) {
	for name, c := range map[string]struct {
		first, second func(l *cudatest.Launch)
		race          string
	}{
		"both read all": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "",
		},
		"one changes a byte": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "bytes 7 to 7 ",
		},
		"they change bytes side by side": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[8]++ }, "",
		},
		"what lies behind is not read": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[8]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "",
		},
		"and what does not": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "bytes 7 to 7 ",
		},
		"both change a word atomically": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ },
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ }, "",
		},
		"one does not": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 1)[0]++ }, "bytes 0 to 0 ",
		},
		"what is beside": {
			func(l *cudatest.Launch) {
				cudatest.Atomics[uint32](l, 0, 1)[0]++
				cudatest.ElementsAt[uint32](l, cudatest.Arg[driver.DevicePtr](l, 0)+4, 1)[0]++
			},
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ }, "",
		},
		"an atomic operation changes nothing": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1) },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "bytes 0 to 3 ",
		},
		"a part, and then all": {
			func(l *cudatest.Launch) {
				p := cudatest.Arg[driver.DevicePtr](l, 0)
				cudatest.MemoryAt[byte](l, p+8)[1]++
				cudatest.MemoryAt[byte](l, p)[3]++
				cudatest.MemoryAt[byte](l, p+8)[0]++
			},
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "bytes 3 to 9 ",
		},
		"parts that lie apart": {
			func(l *cudatest.Launch) {
				for i := range driver.DevicePtr(100) {
					cudatest.ElementsAt[byte](l, cudatest.Arg[driver.DevicePtr](l, 0)+16*(100-i), 8)[0]++
				}
			},
			func(l *cudatest.Launch) {
				for i := range driver.DevicePtr(100) {
					cudatest.ElementsAt[byte](l, cudatest.Arg[driver.DevicePtr](l, 0)+16*i+8, 8)[0]++
				}
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, cudatest.Config{})
			r.Fill(r.S1, r.X)
			r.Synchronize(r.S1)
			m := testgpu.LoadModule(t, r.Device, []byte(".version 8.0\n.target sm_80\n.address_size 64\n"+
				".visible .entry first(.param .u64 x) { ret; }\n.visible .entry second(.param .u64 x) { ret; }"))
			r.gpu.RegisterKernel("first", cudatest.Kernel{Run: c.first})
			r.gpu.RegisterKernel("second", cudatest.Kernel{Run: c.second})
			first, second := testgpu.Kernel(t, m, "first"), testgpu.Kernel(t, m, "second")
			require.NoError(t, first.Launch(r.S1, cuda.Grid1D(1, 1), r.X))
			require.NoError(t, second.Launch(r.S2, cuda.Grid1D(1, 1), r.X))
			races := r.races()
			if c.race == "" {
				require.Empty(t, races)
				return
			}
			require.Len(t, races, 1)
			require.Contains(t, races[0], c.race)
		})
	}
}

// Of pinned memory a kernel uses what it says. The rest may be the CPU's, which Go's race detector
// watches.
func TestRacesOfKernelsInPinnedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(l *cudatest.Launch)
		race bool
	}{
		"all":    {func(l *cudatest.Launch) { cudatest.Memory[float32](l, 0)[0]++ }, false},
		"a part": {func(l *cudatest.Launch) { cudatest.Elements[float32](l, 0, 16)[0]++ }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, cudatest.Config{})
			h := testgpu.AllocHost[float32](t, r.Device, 32)
			clear(h.Slice())
			m := testgpu.LoadModule(t, r.Device, []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) { ret; }"))
			r.gpu.RegisterKernel("k", cudatest.Kernel{Run: c.run})
			begin, err := h.Range(0, 16)
			require.NoError(t, err)
			require.NoError(t, testgpu.Kernel(t, m, "k").Launch(r.S1, cuda.Grid1D(1, 1), h))
			require.NoError(t, cuda.Copy(r.S2, testgpu.Range(t, r.X, 0, 16), begin))
			for i := range 16 {
				h.Slice()[16+i]++
			}
			require.Equal(t, c.race, len(r.races()) > 0)
		})
	}
}
