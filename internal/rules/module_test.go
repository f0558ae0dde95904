package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestModule(t *testing.T) {
	testgpu.Rule(t, "01 a refused image comes with the compiler's log", 1, func(t *testing.T, b *testgpu.Backend) {
		for name, c := range map[string]struct {
			image string
			code  driver.Result
			says  []string
		}{
			"garbage":      {"garbage", driver.ErrorInvalidImage, []string{"Binary format for key='0'", "neither PTX text nor a cubin"}},
			"syntax error": {strings.Replace(kernels.PTX, "purecuda_empty()", "@()", 1), driver.ErrorInvalidPTX, []string{"Parsing error near '@'"}},
			"new version": {strings.Replace(kernels.PTX, ".version 6.4", ".version 99.0", 1), driver.ErrorUnsupportedPTXVersion,
				[]string{"Unsupported .version 99.0", "the PTX is newer than the driver", "CUDA 1"}},
			"new target": {strings.Replace(kernels.PTX, ".target sm_50", ".target sm_200", 1), driver.ErrorInvalidPTX, []string{"Unsupported .target 'sm_200'"}},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := b.Device().LoadModule([]byte(c.image))
				require.ErrorIs(t, err, c.code)
				for _, s := range c.says {
					require.ErrorContains(t, err, s)
				}
				require.NotContains(t, err.Error(), "\x00")
			})
		}
	})

	testgpu.Rule(t, "01 a kernel that is not in the module is named", 1, func(t *testing.T, b *testgpu.Backend) {
		m := testgpu.Kernels(t, b.Device())
		_, err := m.Kernel("purecuda_nothing")
		require.ErrorIs(t, err, driver.ErrorNotFound)
		require.ErrorContains(t, err, "kernel purecuda_nothing: not in the module")
		for _, name := range []string{"", "purecuda_fill\x00x"} {
			_, err := m.Kernel(name)
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
	})

	// The image may be overwritten, end with a byte 0 or not, and be loaded twice.
	testgpu.Rule(t, "01 an image is copied", 1, func(t *testing.T, b *testgpu.Backend) {
		for _, image := range []string{kernels.PTX, kernels.PTX + "\x00"} {
			text := append([]byte(image), "@@@\x00"...)[:len(image)] // what is behind it is not read
			m, twice := testgpu.LoadModule(t, b.Device(), text), testgpu.LoadModule(t, b.Device(), text)
			clear(text)
			require.NotEqual(t, m.String(), twice.String())
			for _, m := range []*cuda.Module{m, twice} {
				require.NoError(t, testgpu.Kernel(t, m, "purecuda_empty").Launch(b.Device().DefaultStream(), testgpu.OneThread))
			}
		}
		require.NoError(t, b.Device().Synchronize())
	})

	testgpu.Rule(t, "24 a module closes while its kernel runs", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		m, err := b.Device().LoadModule([]byte(kernels.PTX))
		require.NoError(t, err)
		word := testgpu.AllocHost[uint32](t, b.Device(), 1)
		word.Slice()[0] = 0
		fill := testgpu.Kernel(t, m, "purecuda_fill")
		release := testgpu.Hold(t, s)
		require.NoError(t, fill.Launch(s, testgpu.OneThread, word, uint64(1), uint32(3)))
		closed := make(chan error, 1)
		go func() { closed <- m.Close() }()
		select {
		case <-closed:
			t.Error("the kernel had not run")
		case <-time.After(testgpu.Soon):
		}
		require.ErrorIs(t, fill.Launch(s, testgpu.OneThread, word, uint64(1), uint32(3)), cuda.ErrClosed)
		release()
		testgpu.Returns(t, func() { require.NoError(t, <-closed) })
		require.Equal(t, uint32(3), word.Slice()[0])
	})
}
