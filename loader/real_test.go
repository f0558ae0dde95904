//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// realLibrary opens the library that PURECUDA_TEST_LIBRARY names: NVIDIA's own,
// with or without a GPU.
func realLibrary(t *testing.T) *Library {
	path := os.Getenv("PURECUDA_TEST_LIBRARY")
	if path == "" {
		t.Skip("PURECUDA_TEST_LIBRARY names no driver library")
	}
	l, err := Open(path)
	require.NoError(t, err)
	real, err := filepath.EvalSymlinks(path)
	require.NoError(t, err)
	require.Equal(t, real, l.Path)
	return l
}

func TestRealLibrary(t *testing.T) {
	l := realLibrary(t)
	version, r := l.API.DriverGetVersion()
	require.Equal(t, driver.Success, r)
	require.GreaterOrEqual(t, version, int32(driver.Floor))
	t.Logf("%s: CUDA %d.%d, lacks %v", l.Path, version/1000, version%1000/10, l.API.Missing)

	var newer []string // the driver is to have what its version brought, and no more
	for _, f := range driver.Functions {
		if f.Since > int(version) {
			newer = append(newer, f.Symbol)
		}
	}
	require.ElementsMatch(t, newer, l.API.Missing)

	r = l.API.Init(0)
	require.Contains(t, []driver.Result{driver.Success, driver.ErrorNoDevice}, r)
	if r != driver.Success {
		// Without a device calls must still come back, and fail.
		_, r = l.API.DeviceGetCount()
		require.NotEqual(t, driver.Success, r)
		_, r = l.API.EventElapsedTime(0, 0) // by the older symbol up to CUDA 12.7
		require.NotEqual(t, driver.Success, r)
		_, r = l.API.IPCOpenEventHandle(driver.IPCEventHandle{1, 2, 3})
		require.NotEqual(t, driver.Success, r)
		return
	}
	count, r := l.API.DeviceGetCount()
	require.Equal(t, driver.Success, r)
	require.Positive(t, count)
}

// TestRealResultNames compares the names in package driver with the driver's.
func TestRealResultNames(t *testing.T) {
	l := realLibrary(t)
	handle, err := purego.Dlopen(l.Path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	var getErrorName func(r driver.Result, name **byte) driver.Result
	purego.RegisterLibFunc(&getErrorName, handle, "cuGetErrorName")
	for code := range driver.Result(1024) {
		var name *byte
		if getErrorName(code, &name) != driver.Success || name == nil {
			continue // unknown to this driver; package driver may know newer codes
		}
		require.Equal(t, textAt(name), code.Name(), "code %d", code)
	}
}

func textAt(p *byte) string {
	var b []byte
	for ; *p != 0; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		b = append(b, *p)
	}
	return string(b)
}
