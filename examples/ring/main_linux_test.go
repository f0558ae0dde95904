package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// TestMain makes the test binary the program when it is started as that: by a test
// here, or by the program itself, as its consumer.
func TestMain(m *testing.M) {
	if os.Getenv("RING_PROGRAM") == "1" || slices.Contains(os.Args[1:], "-consumer") {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs the program in a process of its own, and returns what it prints.
func program(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RING_PROGRAM=1")
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, t.Output())
	cmd.Stderr = cmd.Stdout // the same, so that they are not written to at once
	err := cmd.Run()
	return out.String(), err
}

func hasGPU() bool {
	drv, err := cuda.Open(nil)
	return err == nil && drv.DeviceCount() > 0
}

func TestSimulated(t *testing.T) {
	if hasGPU() {
		t.Skip("there is a GPU here, which the program would take")
	}
	for _, slots := range []string{"1", "2", "8"} {
		out, err := program(t, "-batches", "50", "-length", "1000", "-slots", slots)
		require.NoError(t, err)
		require.Contains(t, out, "two simulated processes")
		require.Contains(t, out, "consumer: 50 batches of 4000 bytes came, every byte was right\n")
		require.Equal(t, 2, strings.Count(out, "producer: "))
	}
}

func TestReal(t *testing.T) {
	if !hasGPU() {
		if os.Getenv("CUDA_TEST_REQUIRE_GPU") == "1" {
			t.Fatal("CUDA_TEST_REQUIRE_GPU=1, but there is no GPU")
		}
		t.Skip("no GPU here")
	}
	for _, slots := range []string{"1", "8"} {
		out, err := program(t, "-batches", "2000", "-length", "65536", "-slots", slots)
		require.NoError(t, err)
		require.NotContains(t, out, "simulated")
		require.Contains(t, out, "consumer: 2000 batches of 262144 bytes came, every byte was right\n")
		require.Equal(t, 2, strings.Count(out, "producer: "))
	}
}

// What cannot be is said, and nothing is left to wait.
func TestErrors(t *testing.T) {
	out, err := program(t, "-batches", "5", "-length", "16", "-slots", "0")
	require.Error(t, err)
	require.Contains(t, out, "0 slots")
	out, err = program(t, "-consumer", "/nowhere/socket")
	require.Error(t, err)
	require.Contains(t, out, "ring: ")
}
