package kernels

import (
	_ "embed"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed kernels.cu
var source string

//go:embed kernels.go
var documentation string

// names returns what the first group of an expression matches in a text.
func names(text, expression string) (all []string) {
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}

// The text is compiled from the source of today, and the documentation tells of
// all of it.
func TestKernelsAgree(t *testing.T) {
	entries := names(PTX, `\.entry (\w+)\(`)
	require.Len(t, entries, 9)
	require.Equal(t, names(source, `__global__ void(?: __launch_bounds__\(\d+\))?\s(\w+)\(`), entries)
	require.Equal(t, names(documentation, `(?m)^//\t(purecuda_\w+)\(`), entries)
}

// Drivers of CUDA 11.4 and devices of long ago can compile it.
func TestKernelsAreForOldDrivers(t *testing.T) {
	require.Regexp(t, `(?m)^\.version 6\.4$`, PTX)
	require.Regexp(t, `(?m)^\.target sm_50$`, PTX)
	require.NotContains(t, PTX, "\x00")
}
