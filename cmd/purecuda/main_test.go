package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// result is what a run of the command gave.
type result struct {
	code           int
	stdout, stderr string
}

// try runs the command line with the drivers of from.
func try(ctx context.Context, from sources, line string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, strings.Fields(line), &stdout, &stderr, from)
	return result{code, stdout.String(), stderr.String()}
}

// simulated returns sources in which the simulated GPU has so many devices and
// there is no other driver. wrap may change the simulated GPU's table.
func simulated(devices int, wrap func(*cudatest.GPU, *driver.API)) sources {
	return sources{
		cuda: func(string) (*cuda.Driver, error) {
			return nil, &cuda.Error{Op: "open driver", Err: fmt.Errorf("%w:\n\tone\n\ttwo", cuda.ErrDriverNotFound)}
		},
		simulated: func() (*cuda.Driver, error) {
			gpu := cudatest.New(cudatest.Config{Devices: devices})
			api := *gpu.API()
			if wrap != nil {
				wrap(gpu, &api)
			}
			return cuda.OpenDriver(&api)
		},
	}
}

// nvidia returns sources in which a simulated GPU plays NVIDIA's driver.
func nvidia(c cudatest.Config) sources {
	from := simulated(1, nil)
	from.cuda = func(string) (*cuda.Driver, error) { return cuda.OpenDriver(cudatest.New(c).API()) }
	return from
}

func TestUsage(t *testing.T) {
	for line, says := range map[string]string{
		"":                                 "usage: purecuda <command>",
		"frob":                             `no command "frob"`,
		"demo -frob":                       "-frob",
		"demo -driver nvidia":              "must be auto, cuda or sim",
		"demo -batches 0":                  "must be 1 to 251",
		"demo -batches 252":                "must be 1 to 251",
		"demo -batches x":                  "-batches",
		"demo -matrix 0":                   "must be 1 to 1024",
		"demo -matrix 1025":                "must be 1 to 1024",
		"demo -matrix x":                   "-matrix",
		"demo -size 0":                     "must be at least 1 byte",
		"demo -size 64MB":                  "such as 4096",
		"demo -size -1":                    "such as 4096",
		"demo -size 99999999999999999999":  "too large",
		"demo -size 9999999999999GiB":      "too large",
		"demo -size 1GiB -batches 9":       "the limit is 16 GiB",
		"demo -size 8000000000GiB":         "the limit is 16 GiB",
		"demo now":                         `unexpected argument "now"`,
		"info now":                         `unexpected argument "now"`,
		"info -driver sim -library /x/y/z": "no use with -driver sim",
		"bench now":                        `unexpected argument "now"`,
		"bench -rounds 0":                  "must be 1 to 100000",
		"bench -rounds 100001":             "must be 1 to 100000",
		"bench -rounds x":                  "-rounds",
		"bench -driver sim -library /x/y":  "no use with -driver sim",
	} {
		t.Run(line, func(t *testing.T) {
			r := try(t.Context(), simulated(1, nil), line)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, says)
			assert.Empty(t, r.stdout)
		})
	}
}

func TestHelp(t *testing.T) {
	for _, line := range []string{"help", "-h", "--help"} {
		r := try(t.Context(), simulated(1, nil), line)
		assert.Equal(t, result{exitOK, usage, ""}, r)
	}
	for _, line := range []string{"demo -h", "info -help", "bench -h"} {
		r := try(t.Context(), simulated(1, nil), line)
		assert.Equal(t, exitOK, r.code)
		assert.Contains(t, r.stderr, "usage: purecuda "+strings.Fields(line)[0])
		assert.Contains(t, r.stderr, "-driver which")
	}
}

// TestChoice checks which driver is taken, and what is said about it.
func TestChoice(t *testing.T) {
	broken := simulated(1, nil)
	broken.cuda = func(string) (*cuda.Driver, error) {
		return nil, &cuda.Error{Op: "open driver", Code: driver.ErrorSystemDriverMismatch}
	}
	none := simulated(1, nil)
	none.cuda = func(string) (*cuda.Driver, error) { return nil, fmt.Errorf("no: %w", errors.ErrUnsupported) }
	gpu, noGPU := nvidia(cudatest.Config{Devices: 2}), nvidia(cudatest.Config{Devices: -1})
	for _, c := range []struct {
		name      string
		from      sources
		driver    choice
		simulated bool
		says      string
	}{
		{"there is a GPU", gpu, "auto", false, "NVIDIA, simulated GPU (2 × Simulated GPU), CUDA 13.0, 2 devices"},
		{"there is a GPU", gpu, "cuda", false, "NVIDIA, "},
		{"there is a GPU", gpu, "sim", true, "simulated GPU (asked for with -driver sim)"},
		{"no driver", simulated(1, nil), "auto", true, "simulated GPU (no driver library was found; "},
		{"no GPU", noGPU, "auto", true, " has no device; "},
		{"no GPU", noGPU, "cuda", false, ", 0 devices"},
		{"broken driver", broken, "auto", true, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
		{"built without", none, "auto", true, "cannot load a driver"},
	} {
		t.Run(c.name+"/"+string(c.driver), func(t *testing.T) {
			got, err := c.from.open(c.driver, "")
			require.NoError(t, err)
			assert.Equal(t, c.simulated, got.simulated)
			assert.Contains(t, got.String(), c.says)
			assert.NotContains(t, got.String(), "\n")
		})
	}
	for _, command := range []string{"demo", "info", "bench"} {
		r := try(t.Context(), simulated(1, nil), command+" -driver cuda")
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "\n\ttwo")
		assert.Empty(t, r.stdout)
	}
}

func TestInfo(t *testing.T) {
	r := try(t.Context(), simulated(1, nil), "info")
	r.stdout = regexp.MustCompile(`GPU-[-0-9a-f]{36}`).ReplaceAllString(r.stdout, "GPU-N")
	assert.Equal(t, result{exitOK, `driver:   simulated GPU (no driver library was found; "purecuda info -driver cuda" says more)
version:  CUDA 13.0
library:  simulated GPU (1 × Simulated GPU)
missing:  none

device 0 (simulated)
  name:                Simulated GPU
  uuid:                GPU-N
  pci bus id:          0000:01:00.0
  compute capability:  9.0
  memory:              4 GiB, 4 GiB free
  stream priorities:   0 (least) to -5 (greatest)
`, ""}, r)
}

func TestInfoJSON(t *testing.T) {
	r := try(t.Context(), simulated(2, nil), "info -json")
	require.Equal(t, exitOK, r.code, r.stderr)
	var f facts
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &f))
	assert.True(t, f.Simulated)
	assert.Equal(t, "13.0", f.CUDA)
	assert.Len(t, f.Devices, 2)
	assert.Equal(t, uint64(4<<30), f.Devices[1].TotalMemory)
}

func TestInfoOfOldDriver(t *testing.T) {
	r := try(t.Context(), nvidia(cudatest.Config{DriverVersion: 11040}), "info")
	assert.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "version:  CUDA 11.4\n")
	assert.Contains(t, r.stdout, "cuStreamGetId")
}

func TestInfoWithoutDevice(t *testing.T) {
	from := nvidia(cudatest.Config{Devices: -1, DriverVersion: 12020})
	r := try(t.Context(), from, "info -driver cuda")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, "version:  CUDA 12.2\n")
	assert.Contains(t, r.stdout, "missing:  ")
	assert.Contains(t, r.stderr, "no CUDA device is there")

	r = try(t.Context(), from, "info -driver cuda -json")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, `"devices": []`)
	assert.Contains(t, r.stdout, "no CUDA device is there")
}

func TestInfoOfSilentDevice(t *testing.T) {
	r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
		api.DevicePrimaryCtxRetain = func(driver.Device) (driver.Context, driver.Result) { return 0, driver.ErrorOutOfMemory }
	}), "info")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, "name:                Simulated GPU")
	assert.Contains(t, r.stderr, "device 0: cuda: stream priority range: CUDA_ERROR_OUT_OF_MEMORY")
}

func TestInfoLibrary(t *testing.T) {
	from := simulated(1, nil)
	var asked string
	from.cuda = func(library string) (*cuda.Driver, error) {
		asked = library
		return cuda.OpenDriver(cudatest.New(cudatest.Config{}).API())
	}
	r := try(t.Context(), from, "info -library /a/b")
	assert.Equal(t, exitOK, r.code)
	assert.Equal(t, "/a/b", asked)
}
