package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// The Go side, with a process that plays PyTorch's on a simulated GPU.
func TestSimulated(t *testing.T) {
	gpu := newGPU()
	p, dir := startFake(t, gpu)
	require.Equal(t, []string{
		"PyTorch 0.0 in process 1002",
		"from PyTorch: a tensor of shape [1048576] in a block of 8388608 bytes; PyTorch has filled it already: false",
		"from PyTorch: changed here, and PyTorch finds all 1048576 elements right; it had to wait: true",
		"from PyTorch: released, and PyTorch has its memory back",
		"to PyTorch: all 1048576 elements arrived; it had to wait: true",
		"to PyTorch: changed there, and all 1048576 elements are right here; PyTorch was done already: false",
	}, lines(t, func(ctx context.Context, out *bytes.Buffer) error {
		drv, err := cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		return exchange(ctx, drv, p, false, dir, out)
	}))
}

func TestSimulatedKill(t *testing.T) {
	gpu := newGPU()
	p, dir := startFake(t, gpu)
	said := lines(t, func(ctx context.Context, out *bytes.Buffer) error {
		drv, err := cuda.OpenDriver(gpu.API())
		require.NoError(t, err)
		return exchange(ctx, drv, p, true, dir, out)
	})
	require.Len(t, said, 2)
	require.Regexp(t, `^PyTorch was killed; [\d.]+(m|µ)?s later WaitAlive returned: .*the other process is gone`, said[1])
	require.NoFileExists(t, filepath.Join(dir, fakeCounter))
}

func TestReal(t *testing.T) {
	name := realPython(t)
	said := lines(t, func(ctx context.Context, out *bytes.Buffer) error { return run(ctx, name, false, out) })
	t.Log(strings.Join(said, "\n"))
	require.Len(t, said, 6)
	require.Regexp(t, `in a block of 20971520 bytes; PyTorch has filled it already: false$`, said[1])
	require.Equal(t, []string{
		"from PyTorch: changed here, and PyTorch finds all 1048576 elements right; it had to wait: true",
		"from PyTorch: released, and PyTorch has its memory back",
		"to PyTorch: all 1048576 elements arrived; it had to wait: true",
		"to PyTorch: changed there, and all 1048576 elements are right here; PyTorch was done already: false",
	}, said[2:])
}

func TestRealKill(t *testing.T) {
	name := realPython(t)
	said := lines(t, func(ctx context.Context, out *bytes.Buffer) error { return run(ctx, name, true, out) })
	t.Log(strings.Join(said, "\n"))
	require.Len(t, said, 2)
	require.Regexp(t, `^PyTorch was killed; [\d.]+(m|µ)?s later WaitAlive returned: .*the other process is gone`, said[1])
}

// realPython returns a Python with torch, on a machine with a GPU.
func realPython(t *testing.T) string {
	t.Helper()
	drv, err := cuda.Open(nil)
	if err != nil || drv.DeviceCount() == 0 {
		if os.Getenv("CUDA_TEST_REQUIRE_GPU") == "1" {
			t.Fatalf("CUDA_TEST_REQUIRE_GPU=1, but there is no GPU: %v", err)
		}
		t.Skip("no GPU here")
	}
	name := os.Getenv("PYTHON")
	if name == "" {
		name = "python3"
	}
	if err := exec.Command(name, "-c", "import torch").Run(); err != nil {
		t.Skipf("%s with torch is not here", name)
	}
	return name
}

// lines returns the lines that f writes.
func lines(t *testing.T, f func(context.Context, *bytes.Buffer) error) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out := new(bytes.Buffer)
	require.NoError(t, f(ctx, out), "after %q", out)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Without torch the reason is told.
func TestNoTorch(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch.py"), []byte("raise ImportError('not today')\n"), 0o600))
	t.Setenv("PYTHONPATH", dir)
	p, err := start(t.Context(), "python3")
	require.NoError(t, err)
	require.ErrorContains(t, p.greet(nil), "the script: there is no PyTorch in ")
	require.ErrorContains(t, p.end(), "exit status 1")

	_, err = start(t.Context(), "python-that-is-not-there")
	require.ErrorContains(t, err, "-python")
}
