package cuda_test

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall/testlib"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The hot path allocates nothing: on NVIDIA's driver where there is one, and on
// a C library with the same functions, opened and bound by the same loader,
// where there is a C compiler.
func TestHotCallsDoNotAllocate(t *testing.T) {
	t.Run("library", func(t *testing.T) { allocatesNothing(t, libraryDriver(t)) })
	t.Run("real", func(t *testing.T) {
		testgpu.NotDetecting(t)
		allocatesNothing(t, testgpu.RealDriver(t))
	})
}

// byNature are the rows that make objects, for which Go's memory is needed.
var byNature = map[string]string{
	"event-life":  "makes an event",
	"stream-life": "makes a stream",
	"alloc-free":  "makes a buffer",
	"stream-sync": "makes a mark to wait for",
}

func allocatesNothing(t *testing.T, drv *cuda.Driver) {
	h := newHot(t, drv)
	for _, r := range h.rows() {
		if byNature[r.ID] != "" {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			n := testing.AllocsPerRun(1000, func() {
				if err := r.Method(h.Fixture, 1); err != nil {
					t.Error(err)
				}
			})
			require.Zero(t, n)
			h.drain(t)
		})
	}
}

//go:embed testdata/driver.c
var driverSource string

// libraryDriver opens a driver library compiled from testdata/driver.c, here or,
// where PURECUDA_TEST_C_LIBRARY names it, elsewhere.
func libraryDriver(t testing.TB) *cuda.Driver {
	path := os.Getenv("PURECUDA_TEST_C_LIBRARY")
	if path == "" {
		source := driverSource
		for _, f := range driver.Functions {
			if !strings.Contains(source, " "+f.Symbol+"(") {
				source += fmt.Sprintf("CUresult %s(void) { return 0; }\n", f.Symbol)
			}
		}
		path = testlib.Compile(t, source)
	}
	drv, err := cuda.Open(&cuda.Options{Library: path})
	if !opensLibraries() { // then there are no calls into C to test
		require.ErrorIs(t, err, errors.ErrUnsupported)
		t.Skip(err)
	}
	require.NoError(t, err) // an error that matches ErrUnsupported too: the library has every function
	return drv
}

// opensLibraries reports whether this build can open C libraries: see the build constraints
// of package loader.
func opensLibraries() bool {
	info, ok := debug.ReadBuildInfo()
	nocuda := ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "nocuda")
	})
	return !nocuda && slices.Contains([]string{"linux/amd64", "linux/arm64", "windows/amd64"}, runtime.GOOS+"/"+runtime.GOARCH)
}

// A handle of another process goes to C as a struct by value, which each
// platform passes in a way of its own.
func TestHandleCrossesByValue(t *testing.T) {
	d, err := libraryDriver(t).OpenDevice(0)
	require.NoError(t, err)
	var h driver.IPCEventHandle
	var sum uintptr
	for i := range h {
		h[i] = byte(i*7 + 1)
		sum = sum*31 + uintptr(h[i])
	}
	e, err := d.OpenEvent(h, nil)
	require.NoError(t, err)
	defer e.Close()
	require.Equal(t, driver.Event(sum), e.Handle())
}

// BenchmarkLibrary measures what a call costs above an empty C function.
func BenchmarkLibrary(b *testing.B) { benchmark(b, libraryDriver(b)) }
