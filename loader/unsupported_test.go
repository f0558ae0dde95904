//go:build nocuda || !((linux && (amd64 || arm64)) || (windows && amd64))

package loader

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenIsUnsupported(t *testing.T) {
	for _, path := range []string{"", "/usr/lib64/libcuda.so.1"} {
		l, err := Open(path)
		require.Nil(t, l)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.NotErrorIs(t, err, ErrNotFound)
		require.ErrorContains(t, err, "cudatest")
	}
}
