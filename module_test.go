package cuda_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

// An image that ends too early is not given to a driver, which would read on.
func TestImagesCutShort(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.ModuleLoadDataEx = func(unsafe.Pointer, uint32, unsafe.Pointer, unsafe.Pointer) (driver.Module, driver.Result) {
			return 0, driver.ErrorInvalidImage
		}
	})
	elf := cubin()
	binary.LittleEndian.PutUint64(elf[0x28:], 64) // two section headers behind it
	binary.LittleEndian.PutUint16(elf[0x3a:], 64)
	binary.LittleEndian.PutUint16(elf[0x3c:], 2)
	elf = append(elf, make([]byte, 128)...)
	segments := cubin()
	binary.LittleEndian.PutUint64(segments[0x20:], 64)
	binary.LittleEndian.PutUint16(segments[0x36:], 56)
	binary.LittleEndian.PutUint16(segments[0x38:], 1)
	segments = append(segments, make([]byte, 56)...)
	fat := append([]byte("\x50\xed\x55\xba\x01\x00\x10\x00\x20\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 32)...)
	for name, image := range map[string][]byte{"sections": elf, "segments": segments, "fatbin": fat} {
		_, err := d.LoadModule(image)
		require.ErrorIs(t, err, driver.ErrorInvalidImage, "%s: the driver was not asked", name)
		for n := range len(image) {
			_, err := d.LoadModule(image[:n])
			if n >= 4 || n == 0 {
				require.ErrorIs(t, err, cuda.ErrInvalid, "%s: %d bytes", name, n)
			}
		}
	}
	binary.LittleEndian.PutUint64(fat[8:], 1<<64-1)
	_, err := d.LoadModule(fat)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	binary.LittleEndian.PutUint64(elf[0x28:], 1<<64-64)
	_, err = d.LoadModule(elf)
	require.ErrorContains(t, err, "cut short: it has 192 bytes")
}

func TestHintsForRefusedImages(t *testing.T) {
	code := driver.Success
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.ModuleLoadDataEx = func(unsafe.Pointer, uint32, unsafe.Pointer, unsafe.Pointer) (driver.Module, driver.Result) {
			return 0, code
		}
	})
	for c, says := range map[driver.Result]string{
		driver.ErrorNoBinaryForGPU:         "nothing for device 0, whose compute capability is 9.0",
		driver.ErrorJITCompilerNotFound:    "libnvidia-ptxjitcompiler",
		driver.ErrorJITCompilationDisabled: "CUDA_DISABLE_PTX_JIT",
		driver.ErrorLaunchFailed:           "only a new process",
	} {
		code = c
		_, err := d.LoadModule([]byte("x"))
		require.ErrorIs(t, err, c)
		require.ErrorContains(t, err, says)
	}
	require.Zero(t, d.Driver().Stats().Modules)
	_, err := (*cuda.Device)(nil).LoadModule([]byte("x"))
	require.ErrorIs(t, err, cuda.ErrInvalid)
}

func TestForgottenModulesAreClosed(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	for range 5 {
		m, err := d.LoadModule([]byte(kernels.PTX))
		require.NoError(t, err)
		testgpu.Kernel(t, m, "purecuda_empty")
	}
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats() == cuda.Stats{Forgotten: 5} })
}

// TestMachineCode loads what nvcc makes besides PTX, where it is installed.
func TestMachineCode(t *testing.T) {
	d, err := testgpu.RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		nvcc = "/usr/local/cuda/bin/nvcc"
	}
	if _, err := os.Stat(nvcc); err != nil {
		t.Skip("no nvcc here")
	}
	major, minor, err := d.ComputeCapability()
	require.NoError(t, err)
	s := testgpu.NewStream(t, d, nil)
	for _, kind := range []string{"cubin", "fatbin"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), kind)
			cmd := exec.Command(nvcc, "-"+kind, fmt.Sprintf("-arch=sm_%d%d", major, minor), "-o", out, "internal/kernels/kernels.cu")
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", text)
			image, err := os.ReadFile(out)
			require.NoError(t, err)
			m, err := d.LoadModule(image)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			x, got := testgpu.Alloc[uint32](t, d, 100), make([]uint32, 100)
			require.NoError(t, testgpu.Kernel(t, m, "purecuda_fill").Launch(s, cuda.Grid1D(100, 32), x, uint64(100), uint32(7)))
			require.NoError(t, cuda.CopyToSlice(t.Context(), s, got, x))
			for _, v := range got {
				require.Equal(t, uint32(7), v)
			}
		})
	}
}
